"""What time alone decides, looked at every second: local waits over their limit, clusters whose
drain is over, clusters that were removed, sites silent for so long that a job is replaced.

Nothing is decided twice: what is stopped already is left alone until its site confirms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from broker.control.books import Books
from broker.control.round import Round
from broker.lifecycle import events as ev
from broker.lifecycle.disconnect import may_replace
from broker.model.fleet import ClusterState
from broker.model.jobs import Attempt, AttemptPhase, Desired, OutcomeKind
from broker.sense.fleet import read_identities
from broker.state.projection import Projection
from federation.environment import Clock
from federation.units import format_duration

STOOD_STILL_S = 5.0
"""A leader that looks so rarely was not there to hear anybody."""
Late = tuple[str, str, ev.StopDecided | ev.FoundMissing | ev.ReplaceDecided]


class Silence:
    """For how long clusters were not heard: since the later of the last heartbeat answered and
    the beginning of this watch, which is after the election, and after any stop of our own."""

    def __init__(self, answered_s: Callable[[str], float], clock: Clock) -> None:
        self._answered_s = answered_s
        self._clock = clock
        self._since_s = self._looked_s = clock.monotonic_s()

    def look(self) -> None:
        """At every look: what was not heard while this leader stood still is its own fault."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s > STOOD_STILL_S:
            self._since_s = now_s
        self._looked_s = now_s

    def lasts_s(self, cluster: str) -> float:
        """Seconds."""
        return self._clock.monotonic_s() - max(self._answered_s(cluster), self._since_s)


@dataclass(frozen=True, slots=True)
class Decisions:
    """Events for live attempts, as of one look: (job, attempt uid, event)."""

    late: tuple[Late, ...]
    silence: Silence

    def fold(self, round_: Round, leader: object) -> None:
        """Fold them in, as far as they still hold."""
        for job_id, uid, event in self.late:
            job = round_.draft.job(job_id)
            attempt = job.attempt(uid) if job else None
            if job is None or attempt is None or not attempt.live:
                continue
            if isinstance(event, ev.ReplaceDecided):
                if may_replace(attempt, self.silence.lasts_s(attempt.cluster)):
                    round_.contain(uid, round_.fold, job, event)  # it is not back meanwhile
                continue
            round_.contain(uid, round_.fold, job, event)

    def applied(self, round_: Round) -> None:
        """Nothing more to do."""


def vigil(
    books: Books, projection: Projection, now_ms: int, silence: Silence
) -> Decisions | None:
    """What is to be decided now; None = nothing."""
    silence.look()
    identities = read_identities(projection)
    late: list[Late] = list(_replaced(books, silence))
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
                event = ev.StopDecided(
                    attempt.uid, OutcomeKind.WITHDRAWN, unless_started=True
                )
            if event is not None:
                late.append((attempt.job, attempt.uid, event))
    return Decisions(tuple(late), silence) if late else None


def _replaced(books: Books, silence: Silence) -> Iterator[Late]:
    for cluster in books.clusters():
        silence_s = silence.lasts_s(cluster)
        for attempt in books.live_in(cluster):
            if may_replace(attempt, silence_s):
                for_ = format_duration(int(silence_s))
                why = f"{cluster} is silent for {for_} and has stopped {attempt.uid} by itself"
                yield attempt.job, attempt.uid, ev.ReplaceDecided(attempt.uid, why)


def _waits_too_long(books: Books, attempt: Attempt, now_ms: int) -> bool:
    """A local wait is bounded: over its limit it is withdrawn and placed anew."""
    if attempt.phase.rank >= AttemptPhase.RUNNING.rank:
        return False
    admitted = books.admitted(attempt.job)
    limit_s = admitted.terms.max_start_delay_s if admitted else 0
    return bool(limit_s) and now_ms - attempt.placed_ms > limit_s * 1000
