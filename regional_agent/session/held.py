"""One attempt as the agent holds it, and how its state is kept in the journal."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from federation.jobs import JobSpec
from federation.refusals import RefusalCode
from federation.runs import Runs
from federation.usage import Usage
from regional_agent.session.commands import Placement
from regional_agent.session.events import (
    Ended,
    Event,
    FailedTasks,
    Output,
    Prepared,
    Refused,
    Said,
    SliceSet,
    Started,
    TasksChanged,
)
from regional_agent.session.inputs import End, LocalView
from regional_agent.session.ledger import Part, Place, Request, Reservation

ACCEPTED = "accepted"
SUBMITTED = "submitted"
ENDED = "ended"

# What a task's end is called where only an exit code and a signal are told.
_TASK_ENDS = {
    "timed_out": (124, 0),
    "out_of_memory": (137, 9),
    "lost": (-1, 0),
}


@dataclass(slots=True)
class Held:
    """An attempt from its acceptance to its tombstone. Times are broker time (UTC ms)."""

    uid: str
    dispatch_seq: int
    epoch: int
    ticket: bytes
    job: str
    tenant: str
    spec: JobSpec | None
    placement: Placement
    accepted_ms: int
    traceparent: str = ""
    reservation: Reservation | None = None
    state: str = ACCEPTED
    stop_why: str = ""
    withdrawn: bool = False
    prepared: Prepared | None = None
    started: Started | None = None
    started_ms: int = 0
    slice_set: SliceSet | None = None
    told_started: Runs = field(default_factory=Runs)
    told_succeeded: Runs = field(default_factory=Runs)
    told_failed: tuple[FailedTasks, ...] = ()
    last: Ended | Refused | None = None
    ended_ms: int = 0
    # Not kept: known again after a restart.
    last_seq: int = 0
    task_events: list[int] = field(default_factory=list)
    view: LocalView | None = None
    collecting: bool = False
    local_id: str = ""
    contact_s: float = float("-inf")

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.last is None

    @property
    def is_array(self) -> bool:
        """Whether it is a slice of an array."""
        return bool(self.placement.tasks)

    @property
    def waiting_copies(self) -> int:
        """How many of its copies wait in the queue of the site's scheduler."""
        if not (self.placement.queued and self.live):
            return 0
        if self.started is None:
            return max(self.placement.width, 1)
        return max(self.placement.width - self.told_started.count, 0)

    def event(self, said: Said, at_ms: int) -> Event:
        """Something said of this attempt."""
        return Event(self.uid, self.epoch, at_ms, said)

    def news(self, view: LocalView) -> TasksChanged | None:
        """What the broker has not been told of the tasks of an array; taken as told."""
        ends: dict[tuple[int, int], Runs] = {}
        succeeded, over = Runs(), view.running
        for end, tasks in view.ended:
            over = over.union(tasks)
            if end.kind == "succeeded":
                succeeded = succeeded.union(tasks)
            elif end.kind not in ("cancelled", "preempted", "fenced"):
                code = _TASK_ENDS.get(end.kind, (end.exit_code, end.signal))
                ends[code] = ends.get(code, Runs()).union(tasks)
        told_failed = self._failed_tasks()
        changed = TasksChanged(
            started=over.difference(self.told_started),
            succeeded=succeeded.difference(self.told_succeeded),
            failed=tuple(
                FailedTasks(fresh, *code)
                for code, tasks in sorted(ends.items())
                if (fresh := tasks.difference(told_failed))
            ),
        )
        if not (changed.started or changed.succeeded or changed.failed):
            return None
        self.told_started = self.told_started.union(over)
        self.told_succeeded = self.told_succeeded.union(succeeded)
        self.told_failed = tuple(FailedTasks(t, *code) for code, t in sorted(ends.items()))
        return changed

    def _failed_tasks(self) -> Runs:
        failed = Runs()
        for group in self.told_failed:
            failed = failed.union(group.tasks)
        return failed

    def story(self) -> list[tuple[Said, int]]:
        """All that was said of it so far after its acceptance, with the time of each: for a
        broker that asks again although it once acknowledged everything."""
        said: list[tuple[Said, int]] = []
        if self.prepared is not None:
            said.append((self.prepared, self.accepted_ms + self.prepared.prepare_ms))
        if self.started is not None:
            said.append((self.started, self.started_ms))
        if self.slice_set is not None:
            said.append((self.slice_set, self.started_ms or self.accepted_ms))
        if self.told_started:
            told = TasksChanged(self.told_started, self.told_succeeded, self.told_failed)
            said.append((told, self.started_ms or self.accepted_ms))
        if self.last is not None:
            said.append((self.last, self.ended_ms))
        return said

    def usage(self, view: LocalView) -> Usage:
        """What it used: the scheduler counts a task once, the broker every member."""
        members, cards = self.placement.replicas, self.placement.accelerators_per_replica
        return Usage(
            wall_ms=view.wall_ms * members,
            cpu_ms=view.cpu_ms,
            max_rss_bytes=view.max_rss_bytes,
            accelerator_ms=view.wall_ms * members * cards,
        )


def ended_of(end: End, detail: str) -> Ended:
    """An end in the words of the broker, without usage and results."""
    if end.kind == "signalled":
        return Ended("failed", 0, end.signal, detail)
    if end.kind == "fenced":
        return Ended("lost", text=detail, code=RefusalCode.FENCED)
    return Ended(end.kind, end.exit_code, end.signal, detail)


# The journal's detail --------------------------------------------------------------------------


def detail_of(held: Held) -> bytes:
    """What of an attempt is kept beside its acceptance; `read_detail` reads it back."""
    body: dict[str, Any] = {"stop": held.stop_why, "times": [held.started_ms, held.ended_ms]}
    if held.withdrawn:
        body["withdrawn"] = True
    if held.prepared is not None:
        p = held.prepared
        body["prepared"] = [p.prepare_ms, p.fetched_bytes, p.cached_bytes]
    if held.started is not None:
        body["started"] = [held.started.launch_ms, held.started.local_id]
    if held.slice_set is not None:
        body["slice"] = [held.slice_set.dispatch_seq, held.slice_set.tasks.runs]
    if held.told_started:
        body["told"] = [
            held.told_started.runs,
            held.told_succeeded.runs,
            [[f.tasks.runs, f.exit_code, f.signal] for f in held.told_failed],
        ]
    if isinstance(held.last, Refused):
        body["refused"] = [held.last.dispatch_seq, held.last.code, held.last.text]
    elif held.last is not None:
        body["ended"] = _ended_json(held.last)
    return json.dumps(body, separators=(",", ":")).encode()


def read_detail(held: Held, detail: bytes) -> None:
    """Fill in what `detail_of` kept. Raises ValueError, KeyError or TypeError for what it did
    not write."""
    if not detail:
        return
    body = json.loads(detail)
    held.stop_why = body["stop"]
    held.started_ms, held.ended_ms = body["times"]
    held.withdrawn = body.get("withdrawn", False)
    if "prepared" in body:
        held.prepared = Prepared(*body["prepared"])
    if "started" in body:
        held.started = Started(*body["started"])
    if "slice" in body:
        held.slice_set = SliceSet(body["slice"][0], _runs(body["slice"][1]))
    if "told" in body:
        started, succeeded, failed = body["told"]
        held.told_started, held.told_succeeded = _runs(started), _runs(succeeded)
        held.told_failed = tuple(FailedTasks(_runs(t), code, sig) for t, code, sig in failed)
    if "refused" in body:
        held.last = Refused(*body["refused"])
    elif "ended" in body:
        held.last = _ended_of_json(body["ended"])


def reservation_text(held: Held) -> str:
    """Whose an attempt is, what it holds and whose trace it belongs to, as the journal keeps
    it."""
    kept: list[Any] = [held.job, held.tenant, None, []]
    if held.reservation is not None:
        r = held.reservation.request
        kept[2] = [
            r.pool,
            r.replicas,
            r.accelerators,
            r.cpus_milli,
            r.memory_bytes,
            r.width,
            r.one_node,
            [*r.extras],
            [*r.features],
            [[part.pool, part.rack, part.replicas] for part in r.parts],
            r.own_nodes,
        ]
        kept[3] = [[p.pool, p.node, p.accelerators] for p in held.reservation.places]
    if held.traceparent:
        kept.append(held.traceparent)
    return json.dumps(kept, separators=(",", ":"))


def read_reservation(held: Held, text: str) -> None:
    """Fill in what `reservation_text` kept. Raises ValueError or TypeError for anything else."""
    held.job, held.tenant, request, places, *trace = json.loads(text)
    held.traceparent = trace[0] if trace else ""
    if request is not None:
        held.reservation = Reservation(
            held.uid,
            _request(*request),
            tuple(Place(pool, node, tuple(cards)) for pool, node, cards in places),
        )


def _request(*kept: Any) -> Request:
    """The first seven figures, by name what it has of the pool's extras, the features its nodes
    must have, its parts, and whether each replica has a node of its own."""
    extras = kept[7] if len(kept) > 7 else ()
    return replace(
        Request(*kept[:7]),
        extras=tuple((name, each) for name, each in extras),
        features=tuple(kept[8]) if len(kept) > 8 else (),
        parts=tuple(Part(*part) for part in kept[9]) if len(kept) > 9 else (),
        own_nodes=kept[10] if len(kept) > 10 else False,
    )


def _runs(pairs: Any) -> Runs:
    return Runs(tuple((first, last) for first, last in pairs))


def _ended_json(ended: Ended) -> dict[str, Any]:
    u = ended.usage
    return {
        "kind": ended.kind,
        "exit_code": ended.exit_code,
        "signal": ended.signal,
        "text": ended.text,
        "usage": [u.wall_ms, u.cpu_ms, u.max_rss_bytes, u.accelerator_ms],
        "outputs": [[o.path, o.sha256, o.size_bytes, o.mode] for o in ended.outputs],
        "unstarted": ended.unstarted.runs,
        "logs": ended.logs,
        "code": ended.code,
    }


def _ended_of_json(body: dict[str, Any]) -> Ended:
    return Ended(
        kind=body["kind"],
        exit_code=body["exit_code"],
        signal=body["signal"],
        text=body["text"],
        usage=Usage(*body["usage"]),
        outputs=tuple(Output(*output) for output in body["outputs"]),
        unstarted=_runs(body["unstarted"]),
        logs=tuple((stream, size) for stream, size in body["logs"]),
        code=body.get("code", ""),
    )
