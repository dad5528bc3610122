"""Making things last: what came together is synced together, by several threads at once.

A file system commits syncs that wait at the same time as one, so eight threads sync a batch several
times as fast as one would. The threads do nothing but wait for the disk; the keeper's own waits for
them, so nothing is done or said before all of a batch is safe, as if it had synced each itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from regional_agent.act.keeper.held import Held
from regional_agent.act.keeper.layout import attempts_dir
from regional_agent.act.keeper.records import sync_dir

THREADS = 8


class Disk:
    """The disk of one keeper."""

    def __init__(self, state: Path) -> None:
        self._attempts = attempts_dir(state)
        self._threads = ThreadPoolExecutor(THREADS, "disk")
        self._fresh: dict[str, Held] = {}
        self._names_changed = False

    def take_in(self, held: Held) -> None:
        """A new attempt, whose files are to be made safe."""
        self._fresh[held.uid] = held

    def forgotten(self, uid: str) -> None:
        """The directory of an attempt was moved away."""
        self._fresh.pop(uid, None)
        self._names_changed = True

    def keep_names(self) -> bool:
        """Make new attempts, and the moves of old ones, safe; returns whether there were new
        ones. Raises OSError when the disk refuses; to be called again."""
        fresh = list(self._fresh.values())
        self.each(held.sync_contents for held in fresh)
        self.each(held.sync_names for held in fresh)
        if fresh or self._names_changed:
            sync_dir(self._attempts)
        self._names_changed = False
        self._fresh.clear()
        return bool(fresh)

    def each(self, work: Iterable[Callable[[], None]]) -> None:
        """Do all of it at once. Raises the first OSError, after everything has been tried."""
        waiting = list(work)
        if len(waiting) == 1:
            waiting[0]()
            return
        done = [self._threads.submit(one) for one in waiting]
        failed = [error for error in (one.exception() for one in done) if error is not None]
        if failed:
            raise failed[0]
