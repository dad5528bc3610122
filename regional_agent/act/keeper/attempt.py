"""What the records of an attempt mean: one fold, used while running and after a restart alike.

No I/O and no clock here. `Attempt.apply` is the only thing that changes an attempt, and whatever
it is given is in the attempt's records, so a keeper that starts anew is where the last one was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from federation.runs import Runs
from regional_agent.act.keeper.orders import Order, Seat, pairs_of, runs_of, seats_of
from regional_agent.act.keeper.records import Record

SUCCEEDED = "succeeded"
FAILED = "failed"
SIGNALLED = "signalled"
TIMED_OUT = "timed_out"
OUT_OF_MEMORY = "out_of_memory"
CANCELLED = "cancelled"
LOST = "lost"
FENCED = "fenced"

GRAVEST_FIRST = (FENCED, CANCELLED, LOST, OUT_OF_MEMORY, TIMED_OUT, SIGNALLED, FAILED, SUCCEEDED)

Outcome = tuple[str, int]
"""Kind, and the exit code of FAILED or the number of SIGNALLED."""


def outcome_of_status(status: int) -> Outcome:
    """The outcome a wait status stands for."""
    if os.WIFSIGNALED(status):
        return SIGNALLED, os.WTERMSIG(status)
    code = os.WEXITSTATUS(status)
    return (FAILED, code) if code else (SUCCEEDED, 0)


class TaskSet:
    """A growing set of tasks: additions are gathered, so that adding costs nothing much."""

    def __init__(self, runs: Runs | None = None) -> None:
        self._runs = runs or Runs()
        self._fresh: list[tuple[int, int]] = []

    def add(self, task: int) -> None:
        """Add one task."""
        self._fresh.append((task, task))

    @property
    def runs(self) -> Runs:
        """The set."""
        if self._fresh:
            self._runs = Runs.of((*self._runs.runs, *self._fresh))
            self._fresh.clear()
        return self._runs


@dataclass(slots=True)
class Member:
    """One process of a running task. `ended` once its exit is recorded."""

    pid: int
    ticks: int
    ended: Outcome | None = None


@dataclass(slots=True)
class LiveTask:
    """A task between its intent and its end. `cause`: why we are stopping it, if we are."""

    task: int
    lane: int
    started_ms: int
    boot: str
    members: dict[int, Member] = field(default_factory=dict)
    cause: Outcome | None = None
    cpu_ms: int = 0
    max_rss_bytes: int = 0

    def outcome(self) -> Outcome:
        """How the task ended, all its members having ended."""
        if self.cause is not None:
            return self.cause
        ends = [member.ended or (LOST, 0) for member in self.members.values()]
        return next((end for end in ends if end[0] != SUCCEEDED), (SUCCEEDED, 0))


class Attempt:
    """One attempt at this host, as its records tell it."""

    def __init__(self, order: Order, submitted_ms: int = 0) -> None:
        self.order = order
        self.wanted = order.wanted
        self.unstarted = order.wanted
        self.width = order.width
        self.places = order.places
        self.live: dict[int, LiveTask] = {}
        self.done: dict[Outcome, TaskSet] = {}
        self.cancelled = False
        self.fenced = False
        self.contact: tuple[str, float] = ("", 0.0)  # boot, and seconds since it
        self.cancel_grace_s = order.grace_s
        self.submitted_ms = submitted_ms
        self.started_ms = 0
        self.ended_ms = 0
        self.outcome: Outcome | None = None
        self.detail = ""
        self.wall_ms = 0
        self.cpu_ms = 0
        self.max_rss_bytes = 0

    # What may happen next -----------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Nothing of it may start any more."""
        return self.cancelled or self.fenced

    def free_lanes(self) -> list[int]:
        """Lanes in which a task could start now, lowest first."""
        if self.stopped or self.outcome is not None or not self.unstarted:
            return []
        taken = {live.lane for live in self.live.values()}
        return [lane for lane in range(self.width) if lane not in taken]

    def is_over(self) -> bool:
        """True when nothing runs and nothing may start, and the end is not recorded yet."""
        idle = not self.live and (self.stopped or not self.unstarted)
        return idle and self.outcome is None

    def gravest(self) -> Outcome:
        """The outcome of the whole attempt, from those of its tasks."""
        if self.stopped and self.unstarted:
            return (FENCED if self.fenced else CANCELLED), 0
        ends = sorted(self.done, key=lambda end: (GRAVEST_FIRST.index(end[0]), end[1]))
        return ends[0] if ends else ((CANCELLED, 0) if self.cancelled else (SUCCEEDED, 0))

    def seats(self, lane: int) -> tuple[Seat, ...]:
        """The places of a lane by rank; empty if the order names none."""
        replicas = self.order.replicas
        return self.places[lane * replicas : (lane + 1) * replicas]

    # The fold -----------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Change by one record. Raises KeyError, TypeError or ValueError for one that is not."""
        _APPLY[record["k"]](self, record)

    def _submitted(self, record: Record) -> None:
        self.submitted_ms = int(record["at"])
        self.contact = _contact(record)

    def _slice(self, record: Record) -> None:
        asked = runs_of(record["tasks"])
        begun = self.wanted.difference(self.unstarted)
        self.unstarted = asked.difference(begun)
        self.wanted = begun.union(self.unstarted)
        self.width = int(record["width"])
        if record["places"] is not None:
            self.places = seats_of(record["places"])

    def _cancel(self, record: Record) -> None:
        self.cancelled = True
        self.cancel_grace_s = int(record["grace_s"])
        for live in self.live.values():
            live.cause = live.cause or (CANCELLED, 0)

    def _fence(self, _: Record) -> None:
        self.fenced = True
        for live in self.live.values():
            live.cause = live.cause or (FENCED, 0)

    def _intent(self, record: Record) -> None:
        task, at = int(record["t"]), int(record["at"])
        self.unstarted = self.unstarted.difference(Runs(((task, task),)))
        self.live[task] = LiveTask(task, int(record["lane"]), at, str(record["boot"]))
        self.started_ms = self.started_ms or at

    def _pid(self, record: Record) -> None:
        member = Member(int(record["pid"]), int(record["ticks"]))
        self.live[record["t"]].members[int(record["r"])] = member

    def _cause(self, record: Record) -> None:
        live = self.live[record["t"]]
        live.cause = live.cause or (str(record["kind"]), int(record["code"]))

    def _exit(self, record: Record) -> None:
        live = self.live[record["t"]]
        live.members[int(record["r"])].ended = (str(record["kind"]), int(record["code"]))
        live.cpu_ms += int(record["cpu"])
        live.max_rss_bytes = max(live.max_rss_bytes, int(record["rss"]))

    def _task(self, record: Record) -> None:
        task = int(record["t"])
        live = self.live.pop(task)
        self.done.setdefault((str(record["kind"]), int(record["code"])), TaskSet()).add(task)
        self.wall_ms += int(record["wall"])
        self.cpu_ms += live.cpu_ms
        self.max_rss_bytes = max(self.max_rss_bytes, live.max_rss_bytes)
        if record.get("text"):
            self.detail = str(record["text"])

    def _damaged(self, _: Record) -> None:
        """What is not known to have ended may have run, whatever else the records say."""
        known = Runs()
        for tasks in self.done.values():
            known = known.union(tasks.runs)
        lost = self.done.get((LOST, 0), TaskSet()).runs
        self.done[LOST, 0] = TaskSet(lost.union(self.wanted.difference(known)))
        self.unstarted = Runs()
        self.live = {}

    def _end(self, record: Record) -> None:
        self.outcome = (str(record["kind"]), int(record["code"]))
        self.ended_ms = int(record["at"])
        self.detail = str(record.get("text") or self.detail)

    # Short forms --------------------------------------------------------------------------

    def snapshot(self) -> Record:
        """One record that says all the records so far said."""
        return {
            "k": "snapshot",
            "wanted": pairs_of(self.wanted),
            "unstarted": pairs_of(self.unstarted),
            "width": self.width,
            "places": [seat.to_json() for seat in self.places],
            "live": [_live_json(live) for live in self.live.values()],
            "done": _done_json(self.done),
            "cancelled": self.cancelled,
            "fenced": self.fenced,
            "contact": list(self.contact),
            "grace_s": self.cancel_grace_s,
            "times": [self.submitted_ms, self.started_ms, self.ended_ms],
            "outcome": self.outcome,
            "detail": self.detail,
            "usage": [self.wall_ms, self.cpu_ms, self.max_rss_bytes],
        }

    def _snapshot(self, record: Record) -> None:
        self.wanted = runs_of(record["wanted"])
        self.unstarted = runs_of(record["unstarted"])
        self.width = int(record["width"])
        self.places = seats_of(record["places"])
        self.live = {live.task: live for live in map(_live_of, record["live"])}
        self.done = {(kind, code): TaskSet(runs_of(t)) for kind, code, t in record["done"]}
        self.cancelled = bool(record["cancelled"])
        self.fenced = bool(record.get("fenced"))
        self.contact = _contact(record)
        self.cancel_grace_s = int(record["grace_s"])
        self.submitted_ms, self.started_ms, self.ended_ms = record["times"]
        self.outcome = _outcome(record["outcome"])
        self.detail = str(record["detail"])
        self.wall_ms, self.cpu_ms, self.max_rss_bytes = record["usage"]

    def phase(self) -> str:
        """`queued`, `starting`, `running` or `ended`."""
        if self.outcome is not None:
            return "ended"
        if any(live.members for live in self.live.values()) or self.done:
            return "running"
        return "starting" if self.live else "queued"

    def state_json(self) -> dict[str, Any]:
        """The attempt's state as the agent is told it."""
        running = Runs.of((task, task) for task in self.live)
        return {
            "uid": self.order.uid,
            "phase": self.phase(),
            "unstarted": pairs_of(self.unstarted),
            "running": pairs_of(running),
            "done": _done_json(self.done),
            "times": [self.submitted_ms, self.started_ms, self.ended_ms],
            "outcome": self.outcome,
            "usage": [self.wall_ms, self.cpu_ms, self.max_rss_bytes],
            "detail": self.detail,
        }


_APPLY = {
    "submitted": Attempt._submitted,
    "slice": Attempt._slice,
    "cancel": Attempt._cancel,
    "fence": Attempt._fence,
    "intent": Attempt._intent,
    "pid": Attempt._pid,
    "cause": Attempt._cause,
    "exit": Attempt._exit,
    "task": Attempt._task,
    "damaged": Attempt._damaged,
    "end": Attempt._end,
    "snapshot": Attempt._snapshot,
}


def replay(order: Order, records: Iterable[Record]) -> Attempt:
    """The attempt its records tell of. Raises what `apply` raises."""
    attempt = Attempt(order)
    for record in records:
        attempt.apply(record)
    return attempt


def _contact(record: Record) -> tuple[str, float]:
    boot, at_s = record.get("contact") or ("", 0.0)
    return str(boot), float(at_s)


def _done_json(done: dict[Outcome, TaskSet]) -> list[list[Any]]:
    return [[kind, code, pairs_of(tasks.runs)] for (kind, code), tasks in sorted(done.items())]


def _outcome(pair: Any) -> Outcome | None:
    return None if pair is None else (str(pair[0]), int(pair[1]))


def _live_json(live: LiveTask) -> list[Any]:
    members = [[r, m.pid, m.ticks, m.ended] for r, m in live.members.items()]
    head = [live.task, live.lane, live.started_ms, live.boot, live.cause]
    return [*head, members, live.cpu_ms, live.max_rss_bytes]


def _live_of(body: list[Any]) -> LiveTask:
    task, lane, started_ms, boot, cause, members, cpu_ms, max_rss_bytes = body
    live = LiveTask(task, lane, started_ms, boot, {}, _outcome(cause), cpu_ms, max_rss_bytes)
    for rank, pid, ticks, ended in members:
        live.members[rank] = Member(pid, ticks, _outcome(ended))
    return live
