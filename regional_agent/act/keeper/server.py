"""The keeper's socket: requests of the agent in, answers and changes out.

Requests are `{"id", "op", ...}`, answers `{"id", "ok"}` or `{"id", "error"}`; after `subscribe` a
connection also gets `{"changes": [state, ...]}`. An answer to something that changed an attempt
is sent only after the change is safe. A change is the whole newest state, so one that is lost or
overtaken loses nothing.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from regional_agent.act.keeper.attempt import Attempt
from regional_agent.act.keeper.clock import KeeperClock
from regional_agent.act.keeper.crash import CrashPlan
from regional_agent.act.keeper.fence import Fence
from regional_agent.act.keeper.frames import BadFrame, FrameReader, encode
from regional_agent.act.keeper.held import Held, take_on
from regional_agent.act.keeper.layout import AttemptDir, trash_dir
from regional_agent.act.keeper.orders import empty_order, order_of, pairs_of, runs_of
from regional_agent.act.keeper.records import Record
from regional_agent.act.keeper.room import conflict
from regional_agent.act.keeper.runner import Runner
from regional_agent.act.keeper.watch import Watch

PROTOCOL = 2
"""2 keeps contact deadlines; an agent asks before it promises any."""
PUSH_EVERY_S = 0.03
STATES_PER_FRAME = 200
READ_BYTES = 2**18
_PEER = struct.Struct("3i")

Body = dict[str, Any]


class Connection:
    """One agent. `unsent` holds uids whose newest state it has not been given."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.reader = FrameReader()
        self.out = bytearray()
        self.subscribed = False
        self.unsent: set[str] = set()
        self.closed = False

    def send(self, body: Body) -> None:
        """Put a frame in line and send what the socket takes."""
        self.out += encode(body)
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes; a peer that is gone closes the connection."""
        while self.out and not self.closed:
            try:
                del self.out[: self.sock.send(self.out)]
            except BlockingIOError:
                return
            except OSError:
                self.closed = True

    def receive(self) -> list[Body]:
        """The requests that have come in."""
        try:
            data = self.sock.recv(READ_BYTES)
            if data:
                return self.reader.feed(data)
        except BlockingIOError:
            return []
        except (OSError, BadFrame):
            pass
        self.closed = True
        return []


def same_user(sock: socket.socket) -> bool:
    """True if the peer runs as our user."""
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(peer)[1] == os.geteuid())


class Server:
    """Answers requests by changing the runner's attempts."""

    def __init__(
        self,
        state: Path,
        runner: Runner,
        watch: Watch,
        fence: Fence,
        moment: tuple[KeeperClock, CrashPlan],
    ) -> None:
        self._state = state
        self._runner = runner
        self._watch = watch
        self._fence = fence
        self._clock, self._crash = moment
        self.connections: list[Connection] = []
        self.stopping = False
        self._next_push_s = 0.0
        self._ops: dict[str, Callable[[Body], Any]] = {
            "hello": self._hello,
            "submit": self._submit,
            "cancel": self._cancel,
            "contact": self._contact,
            "slice": self._slice,
            "status": self._status,
            "usage": self._usage,
            "forget": self._forget,
            "shutdown": self._shutdown,
        }

    def handle(self, connection: Connection, request: Body) -> None:
        """Do what a request asks; its answer waits for the end of the turn."""
        reply: Body = {"id": request.get("id")}
        if request.get("op") == "subscribe":
            connection.subscribed = True
            connection.unsent = set(self._runner.attempts)
            reply["ok"] = None
        else:
            try:
                reply["ok"] = self._ops[request["op"]](request)
            except (KeyError, TypeError, ValueError, OSError) as error:
                reply["error"] = f"{type(error).__name__}: {error}"
        self._runner.effect(partial(connection.send, reply))

    # Changes ------------------------------------------------------------------------------

    def push(self) -> None:
        """Give subscribers what changed, at most once every `PUSH_EVERY_S`."""
        changed = self._runner.take_changed()
        for connection in self.connections:
            if connection.subscribed:
                connection.unsent |= changed
        now_s = self._clock.monotonic_s()
        if now_s < self._next_push_s:
            return
        for connection in self.connections:
            # One that reads slowly gets the newest state later, not every state.
            if connection.unsent and not connection.out:
                self._next_push_s = now_s + PUSH_EVERY_S
                self._push_to(connection)

    def _push_to(self, connection: Connection) -> None:
        uids = sorted(connection.unsent & self._runner.attempts.keys())
        connection.unsent = set()
        for start in range(0, len(uids), STATES_PER_FRAME):
            part = uids[start : start + STATES_PER_FRAME]
            connection.send({"changes": [self._state_of(uid) for uid in part]})

    def push_due_s(self, now_s: float) -> float | None:
        """How long until changes that wait may be pushed; None if none wait."""
        waiting = any(c.unsent and not c.out for c in self.connections)
        return max(0.0, self._next_push_s - now_s) if waiting else None

    # Requests -----------------------------------------------------------------------------

    def _hello(self, _: Body) -> Body:
        """`sandbox`, `images`: this keeper knows them; `groups`: their version, or why not."""
        groups = self._runner.holds.groups
        return {
            "pid": os.getpid(),
            "protocol": PROTOCOL,
            "sandbox": True,
            "images": True,
            "groups": groups if isinstance(groups, str) else groups.version,
        }

    def _submit(self, request: Body) -> Body:
        """`fresh` is false for an attempt that is here already; `taken` says why it cannot be."""
        order = order_of(request["order"])
        if order.uid in self._runner.attempts:
            return {"fresh": False, "taken": ""}
        taken = conflict(order, self._live(), int(request["cpus_milli"]))
        if taken:
            return {"fresh": False, "taken": taken}
        contact = self._fence.contact_of(request.get("contact_s"))
        held = take_on(self._state, order, self._clock.now_ms(), contact)
        self._begin(held)
        self._fence.hold(held)
        return {"fresh": True, "taken": ""}

    def _cancel(self, request: Body) -> None:
        uid, grace_s = str(request["uid"]), int(request["grace_s"])
        held = self._runner.attempts.get(uid) or self._tombstone(uid)
        self._runner.cancel(held, grace_s)
        self._runner.effect(partial(self._crash.reached, "cancel-synced"))

    def _contact(self, request: Body) -> None:
        """A leader answered a heartbeat sent so many seconds after boot."""
        self._fence.renew(float(request["at_s"]))

    def _tombstone(self, uid: str) -> Held:
        """An attempt cancelled before it came: it exists, has no program and never starts."""
        held = take_on(self._state, empty_order(uid), self._clock.now_ms())
        self._begin(held)
        return held

    def _begin(self, held: Held) -> None:
        self._runner.hold(held)
        self._runner.disk.take_in(held)

    def _slice(self, request: Body) -> list[list[int]]:
        attempt = self._attempt(request).attempt
        if attempt.order.tasks is None:
            raise ValueError(f"{attempt.order.uid} is no array")
        record = _slice_record(attempt, request)
        self._runner.set_slice(self._runner.attempts[attempt.order.uid], record)
        return pairs_of(attempt.wanted)

    def _status(self, request: Body) -> list[Body]:
        known = self._runner.attempts
        asked = sorted(known) if request["uids"] is None else request["uids"]
        return [self._state_of(uid) for uid in asked if uid in known]

    def _usage(self, request: Body) -> Body:
        return self._watch.usage(request["uids"])

    def _forget(self, request: Body) -> None:
        """Moves the directory aside, at once and whole; the agent removes it at leisure."""
        uid = str(request["uid"])
        held = self._runner.attempts.get(uid)
        place = AttemptDir(self._state, uid)
        if held is not None:
            if held.attempt.outcome is None:
                raise ValueError(f"{uid} has not ended")
            self._runner.drop(uid).close()
        if place.root.exists():
            trash = trash_dir(self._state) / f"{uid}.{self._clock.now_ms()}"
            os.rename(place.root, trash)
            self._runner.disk.forgotten(uid)

    def _shutdown(self, request: Body) -> None:
        """End the keeper: only when idle, unless `kill`, which ends every attempt first."""
        live = [held for held in self._runner.attempts.values() if not held.attempt.outcome]
        if live and not request["kill"]:
            raise ValueError(f"{len(live)} attempts have not ended")
        for held in live:
            self._runner.cancel(held, 0)
        self.stopping = True

    def _live(self) -> list[Attempt]:
        return [h.attempt for h in self._runner.attempts.values() if not h.attempt.outcome]

    def _attempt(self, request: Body) -> Held:
        held = self._runner.attempts.get(str(request["uid"]))
        if held is None:
            raise ValueError(f"no attempt {request['uid']!r} here")
        return held

    def _state_of(self, uid: str) -> Body:
        return self._runner.attempts[uid].attempt.state_json()


def _slice_record(attempt: Attempt, request: Body) -> Record:
    tasks, width, places = request["tasks"], int(request["width"]), request["places"]
    seats = len(attempt.places) if places is None else len(places)
    if width < 1 or (seats and seats < width * attempt.order.replicas):
        raise ValueError(f"width {width} does not fit {seats} places")
    return {"k": "slice", "tasks": pairs_of(runs_of(tasks)), "width": width, "places": places}
