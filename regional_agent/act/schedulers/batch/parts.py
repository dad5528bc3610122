"""How the tasks of an attempt become jobs of the batch system."""

from __future__ import annotations

from dataclasses import dataclass

from federation.runs import Runs
from regional_agent.act.schedulers.batch.system import Traits
from regional_agent.act.schedulers.port import LaunchOrder


@dataclass(slots=True)
class Part:
    """One job of the batch system: some tasks of the attempt, by their place in the slice.

    `table`: its elements are numbered from the batch system's first index on; without one the
    index of an element is that of its task. `width` is how many may run at once, 0 = held back.
    `pack`: the job is one of others' too, and this is its element `first_index`.
    """

    nth: int
    tasks: Runs
    table: bool
    width: int
    first_index: int = 0
    local_id: str = ""
    intended_ms: int = 0
    submitted_s: float = 0.0
    pack: str = ""

    @property
    def called(self) -> str:
        """What the batch system calls it, empty before it has it."""
        in_pack = self.pack and self.local_id
        return f"{self.local_id}_{self.first_index}" if in_pack else self.local_id

    @property
    def indices(self) -> Runs:
        """Those of its elements."""
        if not self.table:
            return self.tasks
        return Runs(((self.first_index, self.first_index + self.tasks.count - 1),))

    def tasks_of(self, indices: Runs) -> Runs:
        """The tasks behind some elements."""
        if not self.table:
            return self.tasks.intersection(indices)
        wanted = [
            task
            for index, task in enumerate(self.tasks, self.first_index)
            if index in indices
        ]
        return Runs.of((task, task) for task in wanted)

    def indices_of(self, tasks: Runs) -> Runs:
        """The elements behind some tasks."""
        if not self.table:
            return self.tasks.intersection(tasks)
        wanted = [i for i, task in enumerate(self.tasks, self.first_index) if task in tasks]
        return Runs.of((index, index) for index in wanted)


def plan(order: LaunchOrder, tasks: Runs, width: int, traits: Traits, nth: int = 0) -> list[Part]:
    """The jobs that tasks become, as many as the limits on arrays ask for, numbered from `nth`;
    `width` of them run at once, the first ones first."""
    if order.tasks is None:
        return [Part(nth, tasks, table=False, width=1)]
    first = traits.first_index
    # Its own indices stay visible to whoever looks at the queue, where they fit.
    whole = len(tasks.runs) == 1 or not traits.one_run
    own = whole and tasks.runs[0][0] >= first and tasks.runs[-1][1] < first + traits.array_max
    parts: list[Part] = []
    left = tasks
    while left:
        some, left = left.take(traits.array_max)
        room = max(0, min(width, some.count))
        parts.append(Part(nth + len(parts), some, not own, room, first))
        width -= room
    return parts
