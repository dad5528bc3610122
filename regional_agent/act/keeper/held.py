"""An attempt together with its files: every change goes through `record`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from regional_agent.act.keeper.attempt import LOST, Attempt, replay
from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.keeper.orders import Order, empty_order, order_json, order_of
from regional_agent.act.keeper.records import (
    Record,
    RecordFile,
    read,
    sync_dir,
    sync_file,
    write_file,
)

COMPACT_BYTES = 2**20


class Held:
    """One attempt the keeper holds. `record` changes and remembers; `sync` makes it last."""

    def __init__(self, attempt: Attempt, place: AttemptDir, file: RecordFile) -> None:
        self.attempt = attempt
        self.place = place
        self._file = file
        self._compact_at_bytes = COMPACT_BYTES
        self._rewrite = False
        self._unsafe: dict[Path, tuple[bytes, int]] = {}
        self.damaged = False

    @property
    def uid(self) -> str:
        """The attempt's uid."""
        return self.attempt.order.uid

    def record(self, record: Record) -> None:
        """Apply a record and put it in line to be written."""
        self.attempt.apply(record)
        self._file.append(record)

    def write(self) -> None:
        """Hand the records over to the kernel."""
        self._file.write()

    def sync(self) -> None:
        """Make all records so far outlast the machine; many are replaced by one that sums up.

        Raises OSError when the disk refuses; to be called again.
        """
        try:
            if self._rewrite or self._file.size_bytes > self._compact_at_bytes:
                self._file.replace(self.attempt.snapshot())
                # A summary may be long itself: the next is due when the file has doubled.
                self._compact_at_bytes = max(COMPACT_BYTES, 2 * self._file.size_bytes)
            else:
                self._file.sync()
        except OSError:
            # After a failed sync the kernel may have dropped what it had: all is written anew.
            self._rewrite = True
            raise
        self._rewrite = False
        if self.attempt.outcome is not None:
            # Nothing more is to come, and open files are few.
            self._file.close()

    def lay(self, path: Path, data: bytes, mode: int) -> None:
        """Write a file that `sync_contents` will make safe. Raises OSError."""
        write_file(path, data, mode)
        self._unsafe[path] = data, mode

    def sync_contents(self) -> None:
        """Make what is in its new files outlast the machine. Raises OSError; to be called again,
        and then all is written anew."""
        try:
            for path, (data, mode) in self._unsafe.items():
                if self._rewrite:
                    write_file(path, data, mode)
                sync_file(path)
        except OSError:
            self._rewrite = True
            raise
        self.sync()

    def sync_names(self) -> None:
        """Give the order its name, now that all the attempt begins with is safe, and make the
        names in its directory so. Raises OSError; may be called again."""
        if self.place.fresh_order.exists():
            os.rename(self.place.fresh_order, self.place.order)
        sync_dir(self.place.root)
        self._unsafe.clear()

    def close(self) -> None:
        """Let go of the files."""
        self._file.close()


def take_on(
    state: Path, order: Order, at_ms: int, contact: tuple[str, float] | None = None
) -> Held:
    """Begin to hold a new attempt: it is one, durably, after `sync_contents` and `sync_names` and
    once the directory it lies in is synced. Raises OSError when the disk refuses."""
    place = AttemptDir(state, order.uid)
    place.work.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.logs.mkdir(mode=0o700, exist_ok=True)
    held = Held(Attempt(order), place, RecordFile(place.journal, 0))
    if order.run:
        held.lay(place.script, order.run.encode(), 0o700)
    held.lay(place.fresh_order, json.dumps(order_json(order)).encode(), 0o600)
    held.record({"k": "submitted", "at": at_ms, "contact": contact})
    held.write()
    return held


def pick_up(state: Path, uid: str, now_ms: int) -> Held | None:
    """The attempt another keeper held; None if there never was an order.

    What a damaged disk no longer tells is taken as lost: nothing of it is started.
    """
    place = AttemptDir(state, uid)
    if not place.order.exists():
        return None
    records, good_bytes, damaged = read(place.journal)
    # The first record is safe before the order is: without it the rest is missing, too.
    damaged = damaged or not records or records[0].get("k") not in ("submitted", "snapshot")
    try:
        attempt = replay(order_of(json.loads(place.order.read_bytes())), records)
    except (KeyError, TypeError, ValueError):
        attempt, damaged = Attempt(empty_order(uid)), True
    held = Held(attempt, place, RecordFile(place.journal, good_bytes))
    if damaged and attempt.outcome is None:
        held.damaged = True
        text = "the keeper's records of it are damaged"
        held.record({"k": "damaged"})
        held.record({"k": "end", "at": now_ms, "kind": LOST, "code": 0, "text": text})
    return held
