"""Picking up what an earlier keeper of this directory left, before anything else is done."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from regional_agent.act.keeper import processes, strays
from regional_agent.act.keeper.attempt import LOST, LiveTask
from regional_agent.act.keeper.clock import KeeperClock
from regional_agent.act.keeper.fence import Fence
from regional_agent.act.keeper.held import Held, pick_up
from regional_agent.act.keeper.layout import attempts_dir, is_uid
from regional_agent.act.keeper.records import Record
from regional_agent.act.keeper.runner import UNSEEN, MemberKey, Runner

NEVER_RAN = "the keeper died while it was starting it, so it may not have run at all"


class Adopter:
    """Restores attempts, finds which of their processes still live, and gives up the others."""

    def __init__(
        self, state: Path, runner: Runner, clock: KeeperClock, boot: str, fence: Fence
    ) -> None:
        self._state = state
        self._runner = runner
        self._fence = fence
        self._clock = clock
        self._boot = boot

    def adopt(self) -> dict[int, int]:
        """Hold all attempts found; returns pid -> pidfd of the processes to be watched."""
        watched: dict[int, int] = {}
        for name in sorted(os.listdir(attempts_dir(self._state))):
            held = pick_up(self._state, name, self._clock.now_ms()) if is_uid(name) else None
            if held is None:
                continue
            self._runner.hold(held)
            self._fence.hold(held, taken_up=True)
            if held.damaged:
                # Nobody can tell any more what of it runs, and nothing may run unseen.
                self._runner.holds.clear_all(held.uid)
                strays.kill_marked(held, None)
                continue
            for live in list(held.attempt.live.values()):
                watched |= self._adopt_task(held, live)
            self._runner.settle(held)
        return watched

    def _adopt_task(self, held: Held, live: LiveTask) -> dict[int, int]:
        found: dict[int, int] = {}
        gone: list[int] = []
        for rank, member in live.members.items():
            if member.ended is not None:
                continue
            fd = self._open(member.pid, member.ticks) if live.boot == self._boot else None
            if fd is None:
                gone.append(rank)
            else:
                found[member.pid] = fd
                self._runner.members[member.pid] = MemberKey(held.uid, live.task, rank)
        missing = held.attempt.order.replicas - len(live.members)
        if not found:
            strays.kill_marked(held, live.task)
            self._runner.lose(held, live, UNSEEN if live.members else NEVER_RAN)
        elif live.cause is not None or gone or missing:
            for rank in gone:
                self._runner.record(held, _unseen_exit(live.task, rank))
            self._stop(held, live)
        else:
            age_s = max(self._age_s(member.ticks) for member in live.members.values())
            self._runner.watch_runtime(held, live.task, elapsed_s=age_s)
        return found

    def _stop(self, held: Held, live: LiveTask) -> None:
        grace_s = held.attempt.cancel_grace_s
        if live.cause is None:
            self._runner.give_up(held, live, (LOST, 0), grace_s)
        else:
            self._runner.effect(partial(self._runner.stop, held, live, grace_s))

    def _age_s(self, ticks: int) -> float:
        return processes.age_s(ticks, self._clock.since_boot_s())

    def _open(self, pid: int, ticks: int) -> int | None:
        """A handle on exactly that process; None if it is gone."""
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return None
        # Checked after opening: from here on the handle cannot come to mean another one.
        if processes.start_ticks(pid) == ticks:
            return fd
        os.close(fd)
        return None


def _unseen_exit(task: int, rank: int) -> Record:
    return {"k": "exit", "t": task, "r": rank, "kind": LOST, "code": 0, "cpu": 0, "rss": 0}
