"""What holds the processes of a task together and apart from others: sandbox and control group.

Everything here follows from the order and the names of task and rank, so that a keeper that starts
anew goes on where the last one was.
"""

from __future__ import annotations

from regional_agent.act.keeper import processes
from regional_agent.act.keeper.attempt import (
    OUT_OF_MEMORY,
    SIGNALLED,
    SUCCEEDED,
    Outcome,
    outcome_of_status,
)
from regional_agent.act.keeper.groups import Groups, Limits, find_groups, group_name
from regional_agent.act.keeper.orders import Order
from regional_agent.act.keeper.sandbox import end_of, signal_inside


class Holds:
    """All of this keeper. `groups` is a text, why there are none, until `open` found them."""

    def __init__(self) -> None:
        self.groups: Groups | str = "not looked for"

    def open(self, parent: str) -> None:
        """Look for control groups below `parent`."""
        self.groups = find_groups(parent)

    def begin(self, order: Order, task: int, rank: int, pid: int) -> None:
        """Put a process that waits for leave into its group. Raises OSError: then it must not
        run, for its limits were promised."""
        if not order.grouped:
            return
        if isinstance(self.groups, str):
            raise OSError(f"no control groups: {self.groups}")
        name = group_name(order.uid, task, rank)
        self.groups.make(name, Limits(order.memory_bytes, order.cpus_milli))
        self.groups.add(name, pid)

    def signal(self, order: Order, leader: int, number: int) -> None:
        """Signal the processes of a member."""
        if order.sandbox is None:
            processes.signal_group(leader, number)
        else:
            signal_inside(leader, number)

    def kill(self, order: Order, task: int, rank: int) -> None:
        """SIGKILL all of a member that a group holds."""
        if order.grouped and isinstance(self.groups, Groups):
            self.groups.kill(group_name(order.uid, task, rank))

    def outcome(self, order: Order, status: int) -> Outcome:
        """What a wait status of the leader says of the program."""
        kind, code = outcome_of_status(status)
        number = end_of(code) if order.sandbox is not None and kind != SUCCEEDED else 0
        return (SIGNALLED, number) if number else (kind, code)

    def end(self, order: Order, task: int, rank: int, end: Outcome) -> Outcome:
        """How a member that is over truly ended."""
        if not order.grouped or isinstance(self.groups, str):
            return end
        ran_out = self.groups.ran_out_of_memory(group_name(order.uid, task, rank))
        return (OUT_OF_MEMORY, 0) if ran_out and end[0] != SUCCEEDED else end

    def clear(self, order: Order, task: int) -> None:
        """A task is over: its groups go, with whatever its processes left behind."""
        if order.grouped and isinstance(self.groups, Groups):
            for rank in range(order.replicas):
                self.groups.remove(group_name(order.uid, task, rank))

    def clear_all(self, uid: str) -> None:
        """Nothing of an attempt may live on, whatever its order was."""
        if isinstance(self.groups, Groups):
            for name in self.groups.of(uid):
                self.groups.remove(name)

    def close(self) -> None:
        """Leave nothing behind."""
        if isinstance(self.groups, Groups):
            self.groups.leave()
