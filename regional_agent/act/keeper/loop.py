"""The keeper's loop. One turn: take in, change, sync, act, tell. Nothing is said or done before
the records that say so are on disk."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
from pathlib import Path

from regional_agent.act.keeper import processes
from regional_agent.act.keeper.adopt import Adopter
from regional_agent.act.keeper.clock import KeeperClock
from regional_agent.act.keeper.crash import CrashPlan
from regional_agent.act.keeper.disk import Disk
from regional_agent.act.keeper.fence import Fence
from regional_agent.act.keeper.layout import (
    attempts_dir,
    group_parent,
    socket_path,
    trash_dir,
)
from regional_agent.act.keeper.runner import Runner
from regional_agent.act.keeper.server import Connection, Server, same_user
from regional_agent.act.keeper.watch import Watch

BACKLOG = 16
DISK_RETRY_S = 0.5


class Keeper:
    """All of the keeper; `open` it, then `run` it until it is told to stop."""

    def __init__(
        self, state: Path, clock: KeeperClock, crash: CrashPlan, idle_exit_s: float
    ) -> None:
        self._state = state
        self._clock = clock
        self._idle_exit_s = idle_exit_s
        self._busy_at_s = clock.monotonic_s()
        boot = processes.boot_id()
        self._runner = Runner(clock, crash, boot, Disk(state))
        self._fence = Fence(state, self._runner, clock, boot)
        self._runner.may_start = self._fence.may_start
        self._adopter = Adopter(state, self._runner, clock, boot, self._fence)
        self._watch = Watch(self._runner, clock)
        self._server = Server(state, self._runner, self._watch, self._fence, (clock, crash))
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._wake_read, self._wake_write = socket.socketpair()
        self._term = False
        self._retry_at_s: float | None = None

    def open(self) -> None:
        """Adopt what is there and listen. The caller holds the lock of the directory."""
        for directory in (attempts_dir(self._state), trash_dir(self._state)):
            directory.mkdir(mode=0o700, exist_ok=True)
        processes.become_subreaper()
        self._catch_signals()
        self._fence.open()
        self._runner.holds.open(group_parent(self._state))
        for pid, fd in self._adopter.adopt().items():
            self._selector.register(fd, selectors.EVENT_READ, pid)
        self._turn()
        self._listen()

    def run(self) -> None:
        """Turn until stopped."""
        while not self._finished():
            for key, events in self._selector.select(self._wait_s()):
                self._ready(key, events)
            self._turn()
        socket_path(self._state).unlink(missing_ok=True)
        self._runner.holds.close()

    def _turn(self) -> None:
        runner = self._runner
        runner.run_timers()
        self._fence.look()
        runner.reap()
        if self._synced():
            runner.act()
        self._watch.keep_looking()
        self._server.push()
        self._tidy_connections()

    def _synced(self) -> bool:
        """False while the disk refuses: then nothing is started, killed or said, but children
        are still reaped and remembered. To die instead would lose every job that runs."""
        try:
            self._runner.keep_names()
            self._runner.plan_starts()
            self._runner.sync()
        except OSError as error:
            if self._retry_at_s is None:
                _say(f"records cannot be written: {error}")
            self._retry_at_s = self._clock.monotonic_s() + DISK_RETRY_S
            return False
        self._retry_at_s = None
        return True

    def _finished(self) -> bool:
        now_s = self._clock.monotonic_s()
        idle = all(h.attempt.outcome is not None for h in self._runner.attempts.values())
        if not idle or self._server.connections:
            self._busy_at_s = now_s
        if self._server.stopping or self._term:
            return idle
        return now_s - self._busy_at_s >= self._idle_exit_s

    def _wait_s(self) -> float:
        now_s = self._clock.monotonic_s()
        retry_s = None if self._retry_at_s is None else max(0.0, self._retry_at_s - now_s)
        waits = (
            retry_s if retry_s is not None else self._runner.wait_s(now_s),
            None if retry_s is not None else self._server.push_due_s(now_s),
            self._fence.wait_s(),
            self._idle_exit_s,
        )
        return min(wait for wait in waits if wait is not None)

    # Signals ------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        for sock in (self._wake_read, self._wake_write):
            sock.settimeout(0)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._wake_read)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # A terminal that closes or Ctrl-C at the agent's is not for us; asked to end by
        # SIGTERM we do so when nothing runs any more.
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, *_: object) -> None:
        self._term = True

    # Sockets ------------------------------------------------------------------------------

    def _listen(self) -> None:
        path = socket_path(self._state)
        path.unlink(missing_ok=True)
        directory = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Through /proc, because the path of a Unix socket has room for 107 bytes only.
            self._listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
        path.chmod(0o600)
        self._listener.listen(BACKLOG)
        self._listener.settimeout(0)
        self._selector.register(self._listener, selectors.EVENT_READ, self._listener)

    def _ready(self, key: selectors.SelectorKey, events: int) -> None:
        if key.data is self._wake_read:
            self._wake_read.recv(4096)
        elif key.data is self._listener:
            self._accept()
        elif isinstance(key.data, Connection):
            if events & selectors.EVENT_WRITE:
                key.data.flush()
            if events & selectors.EVENT_READ:
                for request in key.data.receive():
                    self._server.handle(key.data, request)
        else:
            self._selector.unregister(key.fileobj)
            os.close(key.fd)
            self._runner.orphan_ended(key.data)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if not same_user(sock):
            sock.close()
            return
        sock.settimeout(0)
        connection = Connection(sock)
        self._server.connections.append(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _tidy_connections(self) -> None:
        for connection in list(self._server.connections):
            if connection.closed:
                self._server.connections.remove(connection)
                self._selector.unregister(connection.sock)
                connection.sock.close()
                continue
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
            self._selector.modify(connection.sock, events, connection)


def _say(text: str) -> None:
    """A line for our log, which may lie on the same full disk."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201
