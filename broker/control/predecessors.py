"""Jobs that wait for others (`depends_on`): what a submitter may name, and what frees them.

What a job still waits for is in its own record (`Job.awaits`), settled there as soon as it is
known; a predecessor stays in etcd for a while after its end, and nothing leaves it without a
leader, so no dependent can miss one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from broker.control.books import Books
from broker.control.round import Round
from broker.control.viewing import Viewer
from broker.feedback.entries import JobEntry
from broker.lifecycle import events as ev
from broker.model.jobs import Awaited, Job, JobPhase, OutcomeKind
from broker.state.projection import Projection
from federation.job_parts import Dependency
from federation.jobs import FieldError, InvalidJob, JobSpec


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a predecessor stands: its outcome once it has ended."""

    started: bool
    outcome: str = ""

    @staticmethod
    def of(job: Job) -> Standing:
        """That of a job in etcd."""
        ended = job.phase is JobPhase.ENDED and job.outcome is not None
        outcome = job.outcome.kind.value if ended and job.outcome else ""
        return Standing(job.started_ms > 0, outcome)

    def came(self, when: str) -> bool | None:
        """Whether what is waited for has come: False if it never will, None if not yet. A job
        that ended without a start has started enough: nobody need wait for it."""
        if not self.outcome:
            return True if when == "started" and self.started else None
        return when != "succeeded" or self.outcome == OutcomeKind.SUCCEEDED


# At submission ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Predecessors:
    """Looks named jobs up: in etcd, then among the ended ones of the ledger."""

    projection: Projection
    ended: Callable[[str], Awaitable[JobEntry | None]]

    async def awaited(self, specs: Sequence[JobSpec], viewer: Viewer) -> list[tuple[Awaited, ...]]:
        """For each spec what it has to wait for still. Raises InvalidJob for a job that does not
        exist for this viewer, or that ended otherwise than was to be waited for."""
        if not any(spec.depends_on for spec in specs):
            return [()] * len(specs)
        known: dict[str, Standing | None] = {}
        faults: list[FieldError] = []
        found = []
        for number, spec in enumerate(specs):
            awaits = []
            for index, edge in enumerate(spec.depends_on):
                if edge.job not in known:
                    known[edge.job] = await self._standing(edge.job, viewer)
                standing = known[edge.job]
                came = standing.came(edge.when) if standing else False
                if not came and came is not None:
                    path = f"jobs[{number}]." if len(specs) > 1 else ""
                    faults.append(_fault(f"{path}depends_on[{index}].job", edge, standing))
                elif came is None:
                    awaits.append(Awaited(edge.job, edge.when))
            found.append(tuple(awaits))
        if faults:
            raise InvalidJob(faults)
        return found

    async def _standing(self, job_id: str, viewer: Viewer) -> Standing | None:
        job = self.projection.job(job_id)
        if job is not None:
            return Standing.of(job) if viewer.may_see(job.tenant) else None
        entry = await self.ended(job_id)
        if entry is None or not viewer.may_see(entry.tenant):
            return None
        return Standing(bool(entry.started_ms), entry.outcome)


def _fault(path: str, edge: Dependency, standing: Standing | None) -> FieldError:
    if standing is None:
        return FieldError(path, edge.job, "no such job", "write the id that submit printed")
    return FieldError(
        path,
        edge.job,
        f"has ended as {standing.outcome}: a job that waits for its success would never start",
        "write when: ended, or leave it out",
    )


# While leading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settling:
    """Jobs to look at: those that wait for others, as these now stand."""

    jobs: tuple[str, ...]

    def fold(self, round_: Round, leader: object) -> None:
        """Settle what has come; a job whose wait can never end is over, and says why."""
        for job_id in self.jobs:
            job = round_.draft.job(job_id)
            if job is None or not job.awaits or job.phase is JobPhase.ENDED:
                continue
            event = settled(job, round_.draft.job)
            if event is not None:
                round_.contain(f"job {job_id}", round_.fold, job, event)

    def applied(self, round_: Round) -> None:
        """Nothing more to do: who waits for one that ended by this is found by its change."""


def settled(
    job: Job, find: Callable[[str], Job | None]
) -> ev.PredecessorsCame | ev.PredecessorFailed | None:
    """What has become of the jobs that this one waits for; None = nothing new."""
    came = []
    for each in job.awaits:
        other = find(each.job)
        if other is None:
            return ev.PredecessorFailed(f"job {each.job} is not known any more")
        answer = Standing.of(other).came(each.when)
        if answer is False:
            outcome = other.outcome.kind.value if other.outcome else "ended"
            return ev.PredecessorFailed(
                f"job {each.job}, which had to succeed, has ended as {outcome}"
            )
        if answer:
            came.append(each)
    return ev.PredecessorsCame(tuple(came)) if came else None


def waiting_for(books: Books, changed: Iterable[tuple[Job, Job]]) -> Settling | None:
    """Who waits for jobs that have started or ended by these changes (before, after)."""
    found: dict[str, None] = {}
    for before, after in changed:
        begun = after.started_ms and not before.started_ms
        if begun or after.phase is JobPhase.ENDED:
            found.update(dict.fromkeys(books.dependents(after.id)))
    return Settling(tuple(found)) if found else None
