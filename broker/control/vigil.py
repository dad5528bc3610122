"""What time alone decides, looked at every second: local waits over their limit, clusters whose
drain is over, clusters that were removed.

Nothing is decided twice: what is stopped already is left alone until its site confirms.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.control.books import Books
from broker.control.round import Round
from broker.lifecycle import events as ev
from broker.model.fleet import ClusterState
from broker.model.jobs import Attempt, AttemptPhase, Desired, OutcomeKind
from broker.sense.fleet import read_identities
from broker.state.projection import Projection


@dataclass(frozen=True, slots=True)
class Decisions:
    """Events for live attempts, as of one look: (job, attempt uid, event)."""

    late: tuple[tuple[str, str, ev.StopDecided | ev.FoundMissing], ...]

    def fold(self, round_: Round, leader: object) -> None:
        """Fold them in, as far as they still hold."""
        for job_id, uid, event in self.late:
            job = round_.draft.job(job_id)
            attempt = job.attempt(uid) if job else None
            if job is None or attempt is None or not attempt.live:
                continue
            withdrawn = isinstance(event, ev.StopDecided) and event.why is OutcomeKind.WITHDRAWN
            if not withdrawn or attempt.phase.rank < AttemptPhase.RUNNING.rank:
                round_.contain(uid, round_.fold, job, event)

    def applied(self, round_: Round) -> None:
        """Nothing more to do."""


def vigil(books: Books, projection: Projection, now_ms: int) -> Decisions | None:
    """What is to be decided now; None = nothing."""
    identities = read_identities(projection)
    late: list[tuple[str, str, ev.StopDecided | ev.FoundMissing]] = []
    for cluster in books.clusters():
        identity = identities.get(cluster)
        state = identity.state if identity else None
        deadline_ms = identity.drain_deadline_ms if identity else 0
        removed = state is ClusterState.REMOVED
        drained = state is ClusterState.DRAINING and 0 < deadline_ms <= now_ms
        for attempt in books.live_in(cluster):
            if attempt.phase is AttemptPhase.RUNNING and not (drained or removed):
                continue
            event: ev.StopDecided | ev.FoundMissing | None = None
            if removed:
                text = f"cluster {cluster} was removed by its operators"
                event = ev.FoundMissing(attempt.uid, 0, now_ms, text)
            elif attempt.desired is Desired.STOP:
                continue
            elif drained:
                event = ev.StopDecided(attempt.uid, OutcomeKind.PREEMPTED)
            elif _waits_too_long(books, attempt, now_ms):
                event = ev.StopDecided(attempt.uid, OutcomeKind.WITHDRAWN)
            if event is not None:
                late.append((attempt.job, attempt.uid, event))
    return Decisions(tuple(late)) if late else None


def _waits_too_long(books: Books, attempt: Attempt, now_ms: int) -> bool:
    """A local wait is bounded: over its limit it is withdrawn and placed anew."""
    if attempt.phase.rank >= AttemptPhase.RUNNING.rank:
        return False
    admitted = books.admitted(attempt.job)
    limit_s = admitted.terms.max_start_delay_s if admitted else 0
    return bool(limit_s) and now_ms - attempt.placed_ms > limit_s * 1000
