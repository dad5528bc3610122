"""Contact deadlines at a batch system, where the scripts at the nodes keep them.

`STATE/contact` was changed when there was contact last: by the clock of the file system, which
agent and nodes read alike, whatever their own clocks say. A script stops its program when that is
too long ago, or when it cannot find out. Nothing at a node waits for the agent, so an agent that is
gone makes deadlines pass.

Before contact is put on record, what did not survive the silence before it is: its directory says
so, and the claims of what has not begun are taken. So no script starts in a second life of contact.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from federation.environment import Clock
from regional_agent.act.schedulers.batch import shelf
from regional_agent.act.schedulers.batch.attempt import FENCED_FILE, Attempt
from regional_agent.act.schedulers.port import NEVER, SchedulerUnavailable
from regional_agent.contact import since_boot_s

TEXT = "stopped here: no contact with a leader until its deadline"


class Deadlines:
    """The deadlines of the attempts of one agent; `told` hears of those that are stopped."""

    def __init__(self, state: Path, clock: Clock, told: Callable[[Attempt], None]) -> None:
        self._path = state / "contact"
        self._clock_path = state / "contact.now"
        self._clock = clock
        self._told = told
        self._contact_s: float | None = None
        self._renewing = asyncio.Lock()

    async def look(self, live: Iterable[Attempt], contact_s: float = NEVER) -> None:
        """Stop what is overdue, and then put on record that there was contact at `contact_s`
        seconds since boot, if that is news. Raises SchedulerUnavailable."""
        kept = [a for a in live if a.order.fence_after_s]
        if not kept:
            return  # nobody reads it
        async with self._renewing:
            try:
                late = await asyncio.to_thread(self._bar, kept)
                await asyncio.to_thread(self._renew, contact_s)
            except OSError as problem:
                raise SchedulerUnavailable(f"the record of contact: {problem}") from problem
        for attempt in late:
            self._told(attempt)

    def _bar(self, kept: Iterable[Attempt]) -> list[Attempt]:
        """Those whose silence has lasted too long, or of which a script has found so. A new one
        comes with the contact it was ordered in."""
        now_s, last_s = since_boot_s(), self._last_s()
        late = [
            a for a in kept
            if a.cancel is None
            and (
                now_s > max(last_s, a.order.contact_s) + a.order.fence_after_s
                or (a.place.root / FENCED_FILE).exists()
            )
        ]  # fmt: skip
        for attempt in late:
            shelf.bar(attempt, attempt.order.grace_s, self._clock.now_ms())
            attempt.left_queue, attempt.stopped_s, attempt.detail = False, 0.0, TEXT
        return late

    def _last_s(self) -> float:
        """The last contact on record, in seconds since boot."""
        if self._contact_s is None:
            try:
                behind_s = self._now_s() - self._path.stat().st_mtime
                self._contact_s = since_boot_s() - behind_s
            except FileNotFoundError:
                self._contact_s = NEVER
        return self._contact_s

    def _renew(self, at_s: float) -> None:
        if at_s > self._last_s():
            at_fs_s = self._now_s() - (since_boot_s() - at_s)
            self._path.touch(mode=0o600)
            os.utime(self._path, (at_fs_s, at_fs_s))
            self._contact_s = at_s

    def _now_s(self) -> float:
        """Now, by the clock of the file system."""
        self._clock_path.touch(mode=0o600)
        os.utime(self._clock_path)
        return self._clock_path.stat().st_mtime
