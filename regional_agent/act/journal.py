"""The agent's durable memory: what it said yes to, what it must still tell the broker.

One SQLite file in WAL mode with `synchronous=FULL`: when `commit()` has returned, its contents
survive a power cut. Nothing is done for the broker, and nothing said to it, before the line
that says so is in here. Sequence numbers are never reset. Not safe for use by several threads
at once; a whole `with journal.commit()` may run in any thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SCHEMA = 1

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts (
  uid TEXT PRIMARY KEY, dispatch_seq INTEGER NOT NULL, epoch INTEGER NOT NULL,
  ticket BLOB NOT NULL, spec BLOB NOT NULL, placement BLOB NOT NULL,
  reservation TEXT NOT NULL, accepted_ms INTEGER NOT NULL,
  state TEXT NOT NULL, state_ms INTEGER NOT NULL, detail BLOB NOT NULL,
  ended_seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
  seq INTEGER PRIMARY KEY, uid TEXT NOT NULL, payload BLOB NOT NULL);
"""


class JournalCorrupt(Exception):
    """The file is no journal, is damaged, or comes from a newer version. It was not changed.

    Whoever gets this must treat the disk as lost: set the file aside, open a fresh journal, and
    look every attempt up at the scheduler before launching anything.
    """


class JournalInUse(Exception):
    """Another agent process holds this journal open."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """An attempt the agent has said yes to. `reservation` is text only the agent reads."""

    uid: str
    dispatch_seq: int
    epoch: int
    ticket: bytes
    spec: bytes
    placement: bytes
    reservation: str
    accepted_ms: int


@dataclass(frozen=True, slots=True)
class JournalledAttempt:
    """An acceptance and how far it came. `ended_seq` != 0: a tombstone."""

    acceptance: Acceptance
    state: str
    state_ms: int
    detail: bytes
    ended_seq: int


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event the broker has not acknowledged yet."""

    seq: int
    uid: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Position:
    """Where the journal stands. `journal_id` is another one if the disk was replaced."""

    journal_id: str
    event_seq: int = 0
    event_seq_acked: int = 0
    dispatch_seq: int = 0
    epoch: int = 0
    addresses: tuple[str, ...] = ()


class Transaction:
    """Changes of one commit; all of them become durable together, or none."""

    def __init__(self, db: sqlite3.Connection, position: Position) -> None:
        self._db = db
        self._event_seq = position.event_seq
        self._acked = position.event_seq_acked
        self._dispatch_seq = position.dispatch_seq
        self._epoch = position.epoch
        self._addresses = position.addresses
        self._journal_id = position.journal_id

    @property
    def position(self) -> Position:
        """The position as it will be after this commit."""
        return Position(
            self._journal_id,
            self._event_seq,
            self._acked,
            self._dispatch_seq,
            self._epoch,
            self._addresses,
        )

    def take(self, dispatch_seq: int, epoch: int) -> None:
        """Raise the highest command taken and the highest epoch seen; neither ever falls."""
        self._dispatch_seq = max(self._dispatch_seq, dispatch_seq)
        self._epoch = max(self._epoch, epoch)

    def accept(self, acceptance: Acceptance, state: str = "accepted") -> None:
        """Remember an attempt. Raises ValueError if this uid was accepted before."""
        a = acceptance
        try:
            self._db.execute(
                "INSERT INTO attempts VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    *(a.uid, a.dispatch_seq, a.epoch, a.ticket, a.spec, a.placement),
                    *(a.reservation, a.accepted_ms, state, a.accepted_ms, b"", 0),
                ),
            )
        except sqlite3.IntegrityError as error:
            raise ValueError(f"{a.uid} was accepted before") from error

    def retake(self, uid: str, dispatch_seq: int, epoch: int, ticket: bytes) -> None:
        """The same attempt, dispatched again by a new leader with a ticket of its own."""
        self._change(
            "UPDATE attempts SET dispatch_seq=?, epoch=?, ticket=? WHERE uid=?",
            (dispatch_seq, epoch, ticket, uid),
        )

    def set_state(self, uid: str, state: str, at_ms: int, detail: bytes = b"") -> None:
        """How far the attempt came. Raises KeyError for an attempt not in the journal."""
        self._change(
            "UPDATE attempts SET state=?, state_ms=?, detail=? WHERE uid=?",
            (state, at_ms, detail, uid),
        )

    def set_reservation(self, uid: str, reservation: str) -> None:
        """Replace what the attempt holds, for example after its slice was narrowed."""
        self._change("UPDATE attempts SET reservation=? WHERE uid=?", (reservation, uid))

    def event(self, uid: str, payload: bytes) -> int:
        """Queue an event for the broker; returns its event_seq."""
        self._event_seq += 1
        self._db.execute("INSERT INTO events VALUES (?,?,?)", (self._event_seq, uid, payload))
        return self._event_seq

    def ended(self, uid: str, payload: bytes, at_ms: int, detail: bytes = b"") -> int:
        """The terminal event of an attempt: its row becomes a tombstone. Returns event_seq."""
        seq = self.event(uid, payload)
        self._change(
            "UPDATE attempts SET state='ended', state_ms=?, detail=?, ended_seq=? WHERE uid=?",
            (at_ms, detail, seq, uid),
        )
        return seq

    def acknowledge(self, event_seq: int) -> None:
        """The broker has committed everything up to `event_seq`: those events may go."""
        event_seq = min(event_seq, self._event_seq)
        if event_seq > self._acked:
            self._acked = event_seq
            self._db.execute("DELETE FROM events WHERE seq <= ?", (event_seq,))

    def forget(self, uid: str) -> bool:
        """Drop a tombstone whose end is acknowledged; False, and no change, if it is not."""
        found = self._db.execute(
            "DELETE FROM attempts WHERE uid=? AND ended_seq BETWEEN 1 AND ?", (uid, self._acked)
        )
        return found.rowcount > 0

    def raise_event_seq(self, at_least: int) -> None:
        """Start after what the broker has from this cluster (another disk, or an older one)."""
        self._event_seq = max(self._event_seq, at_least)

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Session addresses of all brokers, for the next start."""
        self._addresses = tuple(addresses)

    def _change(self, statement: str, values: tuple[object, ...]) -> None:
        if self._db.execute(statement, values).rowcount == 0:
            raise KeyError(f"no such attempt in the journal: {values[-1]}")


class Journal:
    """See the module's docstring. Open with `Journal.open`."""

    def __init__(self, db: sqlite3.Connection, path: Path, position: Position) -> None:
        self._db = db
        self.path = path
        self._position = position

    @classmethod
    def open(cls, path: Path, new_id: str) -> Journal:
        """Open the journal, or make one whose `journal_id` is `new_id` if there is no file.

        Raises JournalCorrupt, JournalInUse.
        """
        try:
            db = _connect(path)
            position = _read_position(db, new_id)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise JournalInUse(f"{path} is held by another process") from error
            raise JournalCorrupt(f"{path}: {error}") from error
        except (sqlite3.DatabaseError, ValueError, KeyError) as error:
            raise JournalCorrupt(f"{path}: {error}") from error
        path.chmod(0o600)
        return cls(db, path, position)

    @property
    def position(self) -> Position:
        """Where the journal stands after the last commit."""
        return self._position

    @contextmanager
    def commit(self) -> Iterator[Transaction]:
        """One durable group of changes; an exception inside leaves everything as it was."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            tx = Transaction(self._db, self._position)
            yield tx
            after = tx.position
            if after != self._position:
                _write_position(self._db, after)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._position = after

    def attempts(self) -> tuple[JournalledAttempt, ...]:
        """Every attempt in the journal, tombstones too, in the order they were accepted."""
        rows = self._db.execute("SELECT * FROM attempts ORDER BY dispatch_seq, uid")
        return tuple(_attempt(row) for row in rows)

    def attempt(self, uid: str) -> JournalledAttempt | None:
        """One attempt, or None."""
        row = self._db.execute("SELECT * FROM attempts WHERE uid=?", (uid,)).fetchone()
        return None if row is None else _attempt(row)

    def events_after(self, event_seq: int, limit: int = 1000) -> tuple[PendingEvent, ...]:
        """Unacknowledged events in order, at most `limit`."""
        rows = self._db.execute(
            "SELECT seq, uid, payload FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
            (event_seq, limit),
        )
        return tuple(PendingEvent(*row) for row in rows)

    def close(self) -> None:
        """Close the file. What was committed is already safe."""
        self._db.close()


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=0.2, check_same_thread=False)
    # One agent per journal: the lock is held from the first statement on.
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("BEGIN IMMEDIATE")
    found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(found)
    for statement in _TABLES.split(";"):
        db.execute(statement)
    db.execute("COMMIT")
    return db


def _read_position(db: sqlite3.Connection, new_id: str) -> Position:
    meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    if not meta:
        position = Position(new_id)
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA),))
        _write_position(db, position)
        db.execute("COMMIT")
        return position
    if int(meta["schema"]) > SCHEMA:
        raise ValueError(f"written by a newer version (schema {meta['schema']})")
    position = Position(
        meta["journal_id"],
        int(meta["event_seq"]),
        int(meta["event_seq_acked"]),
        int(meta["dispatch_seq"]),
        int(meta["epoch"]),
        tuple(json.loads(meta["addresses"])),
    )
    newest = db.execute("SELECT COALESCE(MAX(seq), 0) FROM events").fetchone()[0]
    if newest > position.event_seq or position.event_seq_acked > position.event_seq:
        raise ValueError("the event numbers contradict each other")
    return position


def _write_position(db: sqlite3.Connection, position: Position) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
        [
            ("journal_id", position.journal_id),
            ("event_seq", str(position.event_seq)),
            ("event_seq_acked", str(position.event_seq_acked)),
            ("dispatch_seq", str(position.dispatch_seq)),
            ("epoch", str(position.epoch)),
            ("addresses", json.dumps(position.addresses)),
        ],
    )


def _attempt(row: tuple[object, ...]) -> JournalledAttempt:
    *accepted, state, state_ms, detail, ended_seq = row
    return JournalledAttempt(
        Acceptance(*accepted),  # type: ignore[arg-type]  # the columns are in its order
        state,  # type: ignore[arg-type]
        state_ms,  # type: ignore[arg-type]
        detail,  # type: ignore[arg-type]
        ended_seq,  # type: ignore[arg-type]
    )
