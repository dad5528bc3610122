"""What tasks left behind outside their process group, told by the environment it was started with.

A process that gives itself another session and another environment escapes this; only a control
group would hold it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from regional_agent.act.keeper import processes
from regional_agent.act.keeper.held import Held


def kill_inherited(attempts: Mapping[str, Held], members: Collection[int]) -> None:
    """End the orphans we inherited from tasks that are over."""
    for pid in processes.children():
        if pid not in members and _is_stray(pid, attempts):
            processes.kill(pid)


def kill_marked(held: Held, task: int | None) -> None:
    """End whatever on this machine a task (None: any) of an attempt started."""
    marks = {b"TRADEWIND_ATTEMPT": held.uid.encode(), b"HOME": os.fsencode(held.place.work)}
    if task is not None:
        label = held.attempt.order.task_label(task)
        marks[b"TRADEWIND_TASK"] = b"" if label is None else b"%d" % label
    for use in processes.sessions().values():
        for pid in use.pids:
            env = processes.environment_of(pid)
            if all(env.get(name) == value for name, value in marks.items()):
                processes.kill(pid)


def _is_stray(pid: int, attempts: Mapping[str, Held]) -> bool:
    env = processes.environment_of(pid)
    held = attempts.get(env.get(b"TRADEWIND_ATTEMPT", b"").decode(errors="replace"))
    # Another agent's keeper on this machine may hold an attempt of the same name.
    if held is None or env.get(b"HOME") != os.fsencode(held.place.work):
        return False
    task = env.get(b"TRADEWIND_TASK") or b"0"
    return task.isdigit() and int(task) not in held.attempt.live
