"""Where a waiting job stands in the last cycle: its class, and its turn in it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.control.cycle import CycleRecord
from broker.control.room import Line, ahead_of
from broker.model.problem import Job


@dataclass(frozen=True, slots=True)
class Place:
    """A job that a cycle left waiting. `job` is it in the words of the problem, one copy; `head`
    the job that stands for its class there; `turn` how many of the class stand before it."""

    cycle: CycleRecord
    job: Job
    head: str
    turn: int

    def ahead(self, line: Line) -> dict[str, int]:
        """Copies that wait for room before it, by job of the problem."""
        return ahead_of(line, self.job, {self.head: self.turn})


def place_in(cycle: CycleRecord | None, job_id: str) -> Place | None:
    """The place of a job; None where the cycle did not look at it, or gave it a place to run."""
    if cycle is None:
        return None
    unplaced = {item.job: item.count for item in cycle.decided.plan.unplaced}
    for head, waiting in cycle.applier.waiting.items():
        if head != job_id and job_id not in waiting.members:
            continue
        left = unplaced.get(head, 0)
        found = next((job for job in cycle.problem.jobs if job.id == head), None)
        if not left or found is None:
            return None
        turn = 0
        if waiting.members:  # what was placed went to the oldest
            turn = waiting.members.index(job_id) - (len(waiting.members) - left)
            if turn < 0:
                return None
        return Place(cycle, replace(found, id=job_id, count=1), head, turn)
    return None
