"""One attempt at a batch system: what is written down about it, and its state as the port has it.

The journal holds what the agent decided (slices, submissions, a cancel, the end); claims and
marks, one small file a task, what the scripts at the nodes did.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from federation.runs import Runs
from regional_agent.act.keeper import records
from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.keeper.orders import Order, Seat, order_json, order_of, pairs_of, runs_of
from regional_agent.act.schedulers.batch.parts import Part
from regional_agent.act.schedulers.batch.system import SINGLE
from regional_agent.act.schedulers.port import (
    LaunchOrder,
    LocalState,
    Outcome,
    OutcomeKind,
    Phase,
    TaskStates,
    Usage,
)
from regional_agent.session.ledger import Place

SIGNAL_BASE = 128
SIGNALS_MAX = 64
GRAVEST = (
    OutcomeKind.CANCELLED,
    OutcomeKind.PREEMPTED,
    OutcomeKind.LOST,
    OutcomeKind.OUT_OF_MEMORY,
    OutcomeKind.TIMED_OUT,
    OutcomeKind.SIGNALLED,
    OutcomeKind.FAILED,
)


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a task ended. `sure`: nothing the batch system's books say can change it. `stopped`: its
    script was told to stop."""

    outcome: Outcome
    ended_ms: int
    wall_ms: int = 0
    cpu_ms: int = 0
    max_rss_bytes: int = 0
    sure: bool = True
    stopped: bool = False


@dataclass(slots=True)
class Attempt:
    """Everything known of one attempt; see the module."""

    place: AttemptDir
    order: LaunchOrder
    tasks: Runs
    width: int
    submitted_ms: int
    parts: list[Part] = field(default_factory=list)
    dropped: Runs = field(default_factory=Runs)
    claims: dict[int, int] = field(default_factory=dict)
    ends: dict[int, TaskEnd] = field(default_factory=dict)
    cancel: tuple[int, int] | None = None
    """Grace in seconds, and when it was asked for."""
    gone_since_s: dict[int, float] = field(default_factory=dict)
    detail: str = ""
    outcome: Outcome | None = None
    ended_ms: int = 0
    # Only while it is followed.
    seen_claims: set[str] = field(default_factory=set)
    left_queue: bool = False
    stopped_s: float = 0.0
    accounted: bool = False
    over_s: float = 0.0

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.place.uid

    @property
    def started(self) -> Runs:
        """Tasks whose program began."""
        return Runs.of((task, task) for task in self.claims)

    @property
    def ended(self) -> Runs:
        """Tasks that ended, however surely."""
        return Runs.of((task, task) for task in self.ends)

    @property
    def running(self) -> Runs:
        """Tasks that began and have not ended."""
        return Runs.of((task, task) for task in self.claims if task not in self.ends)

    @property
    def unstarted(self) -> Runs:
        """Tasks nobody began."""
        return self.tasks.difference(self.started).difference(self.ended)

    @property
    def local_id(self) -> str:
        """The first id at the batch system, the uid before there is any."""
        return self.parts[0].local_id if self.parts and self.parts[0].local_id else self.uid

    def state(self) -> LocalState:
        """As the port tells it."""
        ends: dict[Outcome, list[tuple[int, int]]] = {}
        for task, end in self.ends.items():
            ends.setdefault(end.outcome, []).append((task, task))
        phase = Phase.QUEUED
        if self.outcome is not None:
            phase = Phase.ENDED
        elif self.claims or self.ends:
            phase = Phase.RUNNING
        return LocalState(
            uid=self.uid,
            phase=phase,
            tasks=TaskStates(
                self.unstarted,
                self.running,
                tuple((outcome, Runs.of(tasks)) for outcome, tasks in ends.items()),
            ),
            submitted_ms=self.submitted_ms,
            started_ms=min(self.claims.values(), default=0),
            ended_ms=self.ended_ms,
            outcome=self.outcome,
            usage=Usage(
                sum(end.wall_ms for end in self.ends.values()),
                sum(end.cpu_ms for end in self.ends.values()),
                max((end.max_rss_bytes for end in self.ends.values()), default=0),
            ),
            detail=self.detail,
        )

    def gravest(self) -> Outcome:
        """The outcome of the whole, from those of its tasks."""
        found = {end.outcome for end in self.ends.values()}
        if self.cancel is not None and (self.unstarted or not found):
            found.add(Outcome(OutcomeKind.CANCELLED))
        for kind in GRAVEST:
            for outcome in sorted(found, key=lambda o: (o.exit_code, o.signal)):
                if outcome.kind is kind:
                    return outcome
        return Outcome(OutcomeKind.SUCCEEDED)

    # What the scripts did ---------------------------------------------------------------------

    def scan(self) -> bool:
        """Read claims and marks that are new; True if there were any."""
        fresh = False
        for name in _names(self.place.root / "claims"):
            if name not in self.seen_claims:
                fresh |= self._claimed(name)
        for name in _names(self.place.root / "marks"):
            task = _task_of(name)
            if task is not None and task not in self.ends:
                fresh |= self._marked(task, self.place.root / "marks" / name)
        return fresh

    def _claimed(self, name: str) -> bool:
        path, task = self.place.root / "claims" / name, _task_of(name)
        try:
            words = path.read_text().split()
            made_ms = path.stat().st_mtime_ns // 1_000_000
        except OSError:
            return False
        if task is None or not words:  # the claim is taken, and its content on its way
            return False
        self.seen_claims.add(name)
        if words[0] != "run":
            return False
        self.claims[task] = int(words[2]) if len(words) > 2 and words[2].isdigit() else made_ms  # noqa: PLR2004
        return True

    def _marked(self, task: int, path: Path) -> bool:
        try:
            head, *times = path.read_text().splitlines()
            cause, code, begun_ms, ended_ms = head.split()
            exit_code, wall_ms = int(code), max(0, int(ended_ms) - int(begun_ms))
        except (OSError, ValueError):
            return False
        self.claims.setdefault(task, int(begun_ms))
        if cause == "unrun":
            del self.claims[task]
            self.ends[task] = TaskEnd(Outcome(OutcomeKind.CANCELLED), int(ended_ms))
            return True
        outcome, sure = _outcome(cause, exit_code)
        if cause == "stopped" and self.cancel is not None:
            outcome, sure = Outcome(OutcomeKind.CANCELLED), True
        self.ends[task] = TaskEnd(
            outcome, int(ended_ms), wall_ms, _cpu_ms(times), 0, sure=sure,
            stopped=cause == "stopped",
        )  # fmt: skip
        return True

    # What is written down ---------------------------------------------------------------------

    def write(self, record: dict[str, Any]) -> None:
        """Durably add to the journal."""
        file = records.RecordFile(self.place.journal, records.read(self.place.journal)[1])
        try:
            file.append(record)
            file.sync()
        finally:
            file.close()

    def wrote_part(self, part: Part) -> None:
        """A part is going to be, or was, submitted."""
        self.write(
            {
                "is": "part", "nth": part.nth, "tasks": pairs_of(part.tasks),
                "table": part.table, "width": part.width, "first": part.first_index,
                "id": part.local_id, "at": part.intended_ms,
            }
        )  # fmt: skip

    def wrote_cancel(self, grace_s: int, now_ms: int) -> None:
        """It is to stop. From here on no script begins a task of it."""
        records.replace_file(self.place.root / "cancelled", b"%d\n" % grace_s)
        self.write({"is": "cancel", "grace": grace_s, "at": now_ms})
        self.cancel = (grace_s, now_ms)

    def wrote_slice(self) -> None:
        """Tasks and width are others now."""
        self.write(
            {
                "is": "slice", "tasks": pairs_of(self.tasks), "width": self.width,
                "dropped": pairs_of(self.dropped),
            }
        )  # fmt: skip

    def wrote_end(self) -> None:
        """It has ended; what scripts did is not looked at any more."""
        outcome = self.outcome
        assert outcome is not None, "written once it is known"
        ends = [
            [t, e.outcome.kind, e.outcome.exit_code, e.outcome.signal, e.ended_ms, e.wall_ms,
             e.cpu_ms, e.max_rss_bytes]
            for t, e in self.ends.items()
        ]  # fmt: skip
        self.write(
            {
                "is": "end", "kind": outcome.kind, "exit": outcome.exit_code,
                "signal": outcome.signal, "at": self.ended_ms, "detail": self.detail,
                "ends": ends, "claims": list(self.claims.items()),
            }
        )  # fmt: skip


def create(
    place: AttemptDir, order: LaunchOrder, now_ms: int, *, cancelled: bool = False
) -> Attempt:
    """A new attempt on disk; its order exists last. `cancelled`: one that never runs. Raises
    OSError."""
    for part in (place.root, place.work, place.logs, place.root / "claims", place.root / "marks"):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
    attempt = Attempt(place, order, order.tasks or SINGLE, order.width, now_ms)
    attempt.write({"is": "taken", "at": now_ms})
    if cancelled:
        attempt.wrote_cancel(0, now_ms)
    body = json.dumps(order_json(_order(order))).encode()
    records.replace_file(place.order, body)
    return attempt


def restore(place: AttemptDir) -> Attempt | None:
    """An attempt of an earlier life; None if there is none whose order is whole."""
    try:
        order = _launch_order(order_of(json.loads(place.order.read_bytes())))
    except (OSError, ValueError):
        return None
    attempt = Attempt(place, order, order.tasks or SINGLE, order.width, 0)
    for record in records.read(place.journal)[0]:
        _READ[record["is"]](attempt, record)
    return attempt


def _taken(attempt: Attempt, record: dict[str, Any]) -> None:
    attempt.submitted_ms = record["at"]


def _part(attempt: Attempt, record: dict[str, Any]) -> None:
    part = Part(
        record["nth"], runs_of(record["tasks"]), record["table"], record["width"],
        record["first"], record["id"], record["at"],
    )  # fmt: skip
    attempt.parts = [p for p in attempt.parts if p.nth != part.nth]
    attempt.parts.append(part)
    attempt.parts.sort(key=lambda p: p.nth)


def _slice(attempt: Attempt, record: dict[str, Any]) -> None:
    attempt.tasks, attempt.width = runs_of(record["tasks"]), record["width"]
    attempt.dropped = runs_of(record["dropped"])


def _cancel(attempt: Attempt, record: dict[str, Any]) -> None:
    attempt.cancel = (record["grace"], record["at"])


def _end(attempt: Attempt, record: dict[str, Any]) -> None:
    attempt.outcome = Outcome(OutcomeKind(record["kind"]), record["exit"], record["signal"])
    attempt.ended_ms, attempt.detail = record["at"], record["detail"]
    attempt.claims = {task: at_ms for task, at_ms in record["claims"]}
    attempt.ends = {
        task: TaskEnd(Outcome(OutcomeKind(kind), code, number), at_ms, wall, cpu, rss)
        for task, kind, code, number, at_ms, wall, cpu, rss in record["ends"]
    }


_READ = {"taken": _taken, "part": _part, "slice": _slice, "cancel": _cancel, "end": _end}


def outcome_of(code: int) -> Outcome:
    """An exit code as a shell tells it: above 128 a signal."""
    if code == 0:
        return Outcome(OutcomeKind.SUCCEEDED)
    if SIGNAL_BASE < code <= SIGNAL_BASE + SIGNALS_MAX:
        return Outcome(OutcomeKind.SIGNALLED, signal=code - SIGNAL_BASE)
    return Outcome(OutcomeKind.FAILED, exit_code=code)


def _outcome(cause: str, code: int) -> tuple[Outcome, bool]:
    if cause == "timed_out":
        return Outcome(OutcomeKind.TIMED_OUT), True
    outcome = outcome_of(code)
    # Somebody told it to stop, or killed it: the batch system knows who, and whether it was for
    # want of memory.
    return outcome, cause == "exit" and code not in (SIGNAL_BASE + 9, SIGNAL_BASE + 15)


def _cpu_ms(times: list[str]) -> int:
    """Of the children, as `times` prints it: `0m1.25s 0m0.03s`, shell first."""
    try:
        parts = times[1].replace("s", "").split()
        return round(sum(int(m) * 60 + float(s) for m, s in (p.split("m") for p in parts)) * 1000)
    except (IndexError, ValueError):
        return 0


def _task_of(name: str) -> int | None:
    head = name.partition(".")[0]
    return int(head) if head.isdigit() and not name.endswith(".new") else None


def _names(path: Path) -> Iterator[str]:
    try:
        yield from os.listdir(path)
    except FileNotFoundError:
        return


_WRITTEN = sorted(
    (Order.__dataclass_fields__.keys() & LaunchOrder.__dataclass_fields__.keys()) - {"places"}
)
"""What a written order keeps of one; the rest is the keeper's own affair."""


def _order(order: LaunchOrder) -> Order:
    seats = tuple(Seat(p.pool, p.node, p.accelerators) for p in order.places)
    return Order(**{name: getattr(order, name) for name in _WRITTEN}, places=seats)


def _launch_order(order: Order) -> LaunchOrder:
    places = tuple(Place(s.pool, s.node, s.accelerators) for s in order.places)
    return LaunchOrder(**{name: getattr(order, name) for name in _WRITTEN}, places=places)
