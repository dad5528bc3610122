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
from regional_agent.act.schedulers.batch.marks import made_ms_of, read_cpu_ms, read_outcome
from regional_agent.act.schedulers.batch.pack import Pack
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

FENCED_FILE = "fenced"
"""It did not survive a silence: whoever finds that out, agent or script, makes it."""
SETTLED_MS = 5000
"""What began lately may still be shown as waiting: a watch tells of it later than the job does."""
GRAVEST = (
    OutcomeKind.FENCED,
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
    fenced: bool = False
    """It is to stop because its contact deadline has passed, and for no other reason."""
    gone_since_s: dict[int, float] = field(default_factory=dict)
    detail: str = ""
    outcome: Outcome | None = None
    ended_ms: int = 0
    pack: Pack | None = None
    """Where it is written down if it was handed over together with others."""
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

    def settled(self, now_ms: int) -> Runs:
        """Tasks whose program began so long ago that nothing may show them as waiting."""
        last_ms = now_ms - SETTLED_MS
        return Runs.of((task, task) for task, made_ms in self.claims.items() if made_ms <= last_ms)

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
        return self.parts[0].called or self.uid if self.parts else self.uid

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

    @property
    def called_off(self) -> Outcome:
        """The outcome of what was told to stop."""
        return Outcome(OutcomeKind.FENCED if self.fenced else OutcomeKind.CANCELLED)

    def gravest(self) -> Outcome:
        """The outcome of the whole, from those of its tasks."""
        found = {end.outcome for end in self.ends.values()}
        if self.cancel is not None and (self.unstarted or not found):
            found.add(self.called_off)
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
            made_ms = made_ms_of(path)
        except OSError:
            return False
        if task is None or not words:  # the claim is taken, and its content on its way
            return False
        self.seen_claims.add(name)
        if words[0] != "run":
            return False
        self.claims[task] = made_ms
        return True

    def _marked(self, task: int, path: Path) -> bool:
        try:
            head, *times, last = path.read_text().splitlines()
            cause, code = head.split()
            exit_code, ended_ms = int(code), made_ms_of(path)
            begun_ms = made_ms_of(self.place.root / "claims" / path.name)
        except (OSError, ValueError):
            return False
        if last != ".":
            return False  # it is being written
        if cause in ("unrun", "barred"):
            begun = self.claims.pop(task, None) is not None
            if cause == "unrun" and not self.fenced:
                self.ends[task] = TaskEnd(Outcome(OutcomeKind.CANCELLED), ended_ms)
            return begun or task in self.ends
        self.claims.setdefault(task, begun_ms)
        outcome, sure = read_outcome(cause, exit_code)
        if cause == "stopped" and self.cancel is not None:
            outcome, sure = self.called_off, True
        self.ends[task] = TaskEnd(
            outcome, ended_ms, max(0, ended_ms - begun_ms), read_cpu_ms(times), 0, sure=sure,
            stopped=cause == "stopped",
        )  # fmt: skip
        return True

    # What is written down ---------------------------------------------------------------------

    def write(self, record: dict[str, Any]) -> None:
        """Durably add to the journal."""
        if self.pack is not None:
            self.pack.write([record | {"uid": self.uid}])
            return
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

    def wrote_cancel(self, grace_s: int, now_ms: int, *, fenced: bool = False) -> None:
        """It is to stop. From here on no script begins a task of it."""
        if fenced:
            records.replace_file(self.place.root / FENCED_FILE, b"")
        records.replace_file(self.place.root / "cancelled", b"%d\n" % grace_s)
        self.write({"is": "cancel", "grace": grace_s, "at": now_ms, "fenced": fenced})
        self.cancel, self.fenced = (grace_s, now_ms), fenced

    def wrote_slice(self) -> None:
        """Tasks and width are others now."""
        self.write(
            {
                "is": "slice", "tasks": pairs_of(self.tasks), "width": self.width,
                "dropped": pairs_of(self.dropped),
            }
        )  # fmt: skip

    def end_record(self) -> dict[str, Any]:
        """It has ended; what scripts did is not looked at any more once this is written."""
        outcome = self.outcome
        assert outcome is not None, "written once it is known"
        ends = [
            [t, e.outcome.kind, e.outcome.exit_code, e.outcome.signal, e.ended_ms, e.wall_ms,
             e.cpu_ms, e.max_rss_bytes]
            for t, e in self.ends.items()
        ]  # fmt: skip
        return {
            "is": "end", "kind": outcome.kind, "exit": outcome.exit_code,
            "signal": outcome.signal, "at": self.ended_ms, "detail": self.detail,
            "ends": ends, "claims": list(self.claims.items()),
        }  # fmt: skip

    def wrote_end(self) -> None:
        """Write that down."""
        self.write(self.end_record())


def create(
    place: AttemptDir, order: LaunchOrder, now_ms: int, *, cancelled: bool = False
) -> Attempt:
    """A new attempt on disk; its order exists last. `cancelled`: one that never runs. Raises
    OSError."""
    lay_dirs(place)
    attempt = Attempt(place, order, order.tasks or SINGLE, order.width, now_ms)
    attempt.write({"is": "taken", "at": now_ms})
    if cancelled:
        attempt.wrote_cancel(0, now_ms)
    records.replace_file(place.order, json.dumps(order_body(order)).encode())
    return attempt


def lay_dirs(place: AttemptDir) -> None:
    """The directories of an attempt. Raises OSError."""
    for part in (place.root, place.work, place.logs, place.root / "claims", place.root / "marks"):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)


def restore(place: AttemptDir) -> Attempt | None:
    """An attempt of an earlier life; None if there is none whose order is whole."""
    try:
        order = order_from(json.loads(place.order.read_bytes()))
    except (OSError, ValueError):
        return None
    attempt = Attempt(place, order, order.tasks or SINGLE, order.width, 0)
    for record in records.read(place.journal)[0]:
        apply_record(attempt, record)
    return attempt


def apply_record(attempt: Attempt, record: dict[str, Any]) -> None:
    """Let an attempt be as a line of its journal says."""
    read = _READ.get(record["is"])
    if read is not None:
        read(attempt, record)


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
    attempt.fenced = record.get("fenced", False)


def _end(attempt: Attempt, record: dict[str, Any]) -> None:
    attempt.outcome = Outcome(OutcomeKind(record["kind"]), record["exit"], record["signal"])
    attempt.ended_ms, attempt.detail = record["at"], record["detail"]
    attempt.claims = {task: at_ms for task, at_ms in record["claims"]}
    attempt.ends = {
        task: TaskEnd(Outcome(OutcomeKind(kind), code, number), at_ms, wall, cpu, rss)
        for task, kind, code, number, at_ms, wall, cpu, rss in record["ends"]
    }


_READ = {"taken": _taken, "part": _part, "slice": _slice, "cancel": _cancel, "end": _end}


def _task_of(name: str) -> int | None:
    head = name.partition(".")[0]
    return int(head) if head.isdigit() else None


def _names(path: Path) -> Iterator[str]:
    try:
        yield from os.listdir(path)
    except FileNotFoundError:
        return


_WRITTEN = sorted(
    (Order.__dataclass_fields__.keys() & LaunchOrder.__dataclass_fields__.keys()) - {"places"}
)
"""What a written order keeps of one; the rest is the keeper's own affair."""


def order_body(order: LaunchOrder) -> dict[str, Any]:
    """An order as it is written down."""
    seats = tuple(Seat(p.pool, p.node, p.accelerators) for p in order.places)
    written = Order(**{name: getattr(order, name) for name in _WRITTEN}, places=seats)
    return order_json(written)


def order_from(body: dict[str, Any]) -> LaunchOrder:
    """Reads `order_body`. Raises BadOrder."""
    order = order_of(body)
    places = tuple(Place(s.pool, s.node, s.accelerators) for s in order.places)
    return LaunchOrder(**{name: getattr(order, name) for name in _WRITTEN}, places=places)
