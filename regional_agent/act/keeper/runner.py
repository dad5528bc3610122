"""Starts, stops and ends tasks: the only module that forks, kills and waits.

Every method that changes something records it and leaves the doing to `act`, which the loop calls
once the records are safe.
"""

from __future__ import annotations

import heapq
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from regional_agent.act.keeper import capture, processes, strays
from regional_agent.act.keeper.attempt import (
    FAILED,
    FENCED,
    LOST,
    SUCCEEDED,
    TIMED_OUT,
    LiveTask,
    Outcome,
)
from regional_agent.act.keeper.clock import KeeperClock
from regional_agent.act.keeper.crash import CrashPlan
from regional_agent.act.keeper.disk import Disk
from regional_agent.act.keeper.held import Held
from regional_agent.act.keeper.holds import Holds
from regional_agent.act.keeper.records import Record
from regional_agent.act.keeper.spawn import NOT_RUNNABLE_CODE, free_port, program, spawn
from regional_agent.act.keeper.spawn import release as let_go

STARTS_PER_TURN = 32
DRAIN_LOOK_S = 0.05
FENCED_TEXT = "stopped here: no contact with a leader until its deadline"
UNSEEN = "its exit was not seen: the keeper was down when it ended"


@dataclass(frozen=True, slots=True)
class MemberKey:
    """Names one process of one task."""

    uid: str
    task: int
    rank: int


@dataclass(slots=True)
class Drain:
    """A stopped task's first process has ended; what it started may use up its grace."""

    key: MemberKey
    end: Outcome
    cpu_ms: int
    rss_bytes: int


class Runner:
    """All attempts of this host and their processes."""

    def __init__(self, clock: KeeperClock, crash: CrashPlan, boot: str, disk: Disk) -> None:
        self.disk = disk
        self._clock = clock
        self._crash = crash
        self._boot = boot
        self.attempts: dict[str, Held] = {}
        self.changed: set[str] = set()
        self.members: dict[int, MemberKey] = {}
        self._startable: set[str] = set()
        self._dirty: set[str] = set()
        self._drains: dict[int, Drain] = {}
        self._effects: list[Callable[[], None]] = []
        self._forks: list[tuple[str, int]] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._started_s: dict[tuple[str, int], float] = {}
        self._doomed: set[int] = set()
        self._peak_rss: dict[tuple[str, int], int] = {}
        self.may_start: Callable[[Held], bool] = lambda held: True
        self.holds = Holds()

    # Changes ------------------------------------------------------------------------------

    def record(self, held: Held, record: Record) -> None:
        """Change an attempt durably by the end of this turn."""
        held.record(record)
        self._dirty.add(held.uid)
        self.changed.add(held.uid)

    def hold(self, held: Held) -> None:
        """Begin to run an attempt."""
        self.attempts[held.uid] = held
        self.changed.add(held.uid)
        self._startable.add(held.uid)

    def drop(self, uid: str) -> Held:
        """Stop to know an ended attempt."""
        held = self.attempts.pop(uid)
        for names in (self.changed, self._startable, self._dirty):
            names.discard(uid)
        return held

    def cancel(self, held: Held, grace_s: int) -> None:
        """Nothing new starts; what runs gets SIGTERM, and SIGKILL after `grace_s`."""
        if held.attempt.outcome is not None:
            return
        if not held.attempt.cancelled or grace_s < held.attempt.cancel_grace_s:
            self.record(held, {"k": "cancel", "grace_s": grace_s})
            for live in held.attempt.live.values():
                self.effect(partial(self.stop, held, live, grace_s))
        self.settle(held)

    def set_slice(self, held: Held, record: Record) -> None:
        """Replace the wanted tasks; the record says how."""
        if held.attempt.outcome is None:
            self.record(held, record)
            self._startable.add(held.uid)
            self.settle(held)

    def effect(self, action: Callable[[], None]) -> None:
        """Do this once everything recorded so far is safe."""
        self._effects.append(action)

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do this after a while, at the beginning of a turn."""
        self._timer_count += 1
        due_s = self._clock.monotonic_s() + delay_s
        heapq.heappush(self._timers, (due_s, self._timer_count, action))

    def take_changed(self) -> set[str]:
        """Attempts whose newest state is safe and has not been taken yet."""
        taken = self.changed - self._dirty
        self.changed -= taken
        return taken

    def saw_memory(self, uid: str, task: int, rss_bytes: int) -> None:
        """Remember the most that a task's processes were seen to hold together."""
        self._peak_rss[uid, task] = max(rss_bytes, self._peak_rss.get((uid, task), 0))

    # One turn, in the order the loop calls them -------------------------------------------

    def run_timers(self) -> None:
        """Do what is due."""
        now_s = self._clock.monotonic_s()
        while self._timers and self._timers[0][0] <= now_s:
            heapq.heappop(self._timers)[2]()

    def reap(self) -> None:
        """Take the exit of every child that ended; strangers are orphans we inherited."""
        self._kill_doomed()
        ended = False
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if info is None:
                break
            ended = self._reap_one(info.si_pid) or ended
        for group in [g for g in self._drains if processes.group_is_empty(g)]:
            self._drained(group)
            ended = True
        if ended:
            strays.kill_inherited(self.attempts, self.members)

    def plan_starts(self) -> None:
        """Record the intents of the tasks to start in this turn."""
        for uid in sorted(self._startable):
            held = self.attempts[uid]
            for lane in held.attempt.free_lanes():
                if len(self._forks) >= STARTS_PER_TURN:
                    return
                if not held.attempt.unstarted:
                    break
                task = held.attempt.unstarted.runs[0][0]
                at = self._clock.now_ms()
                intent = {"k": "intent", "t": task, "lane": lane, "at": at, "boot": self._boot}
                self.record(held, intent)
                self._forks.append((uid, task))
            self._startable.discard(uid)
        if self._forks:
            self._crash.reached("intent-appended")

    def keep_names(self) -> None:
        """Make new attempts safe, before anything of them starts. Raises OSError; to be called
        again."""
        if self.disk.keep_names():
            self._crash.reached("order-written")

    def sync(self) -> None:
        """Make everything recorded so far safe. Raises OSError; to be called again."""
        exits = any(self.attempts[uid].attempt.outcome for uid in self._dirty)
        self.disk.each(self.attempts[uid].sync for uid in sorted(self._dirty))
        self._dirty.clear()
        if exits:
            self._crash.reached("exit-synced")

    def act(self) -> None:
        """Fork, kill and answer: all that had to wait for `sync`."""
        effects, self._effects = self._effects, []
        for action in effects:
            action()
        forks, self._forks = self._forks, []
        if forks:
            self._crash.reached("intent-synced")
        for uid, task in forks:
            self._start(self.attempts[uid], task)
        self._kill_doomed()

    def wait_s(self, now_s: float) -> float | None:
        """How long the loop may sleep; None: until something happens."""
        if self._dirty or self._startable or self._effects:
            return 0.0
        due_s = [self._timers[0][0] - now_s] if self._timers else []
        if self._drains:
            due_s.append(DRAIN_LOOK_S)
        return max(0.0, min(due_s)) if due_s else None

    # Starting -----------------------------------------------------------------------------

    def _start(self, held: Held, task: int) -> None:
        live = held.attempt.live[task]
        if not self.may_start(held):
            self.record(held, {"k": "cause", "t": task, "kind": FENCED, "code": 0})
            self._finish(held, live, "")
            return
        replicas = held.attempt.order.replicas
        self._started_s[held.uid, task] = self._clock.monotonic_s()
        try:
            port = free_port() if replicas > 1 else 0
            for rank in range(replicas):
                self._start_member(held, task, rank, port)
        except OSError as error:
            self._not_started(held, live, str(error))
        else:
            self.watch_runtime(held, task, elapsed_s=0.0)
        if live.cause is not None and held.attempt.live.get(task) is live:
            self.stop(held, live, held.attempt.cancel_grace_s)

    def _start_member(self, held: Held, task: int, rank: int, port: int) -> None:
        child = spawn(program(held.attempt, held.place, task, rank, port))
        self._crash.reached("forked")
        key = MemberKey(held.uid, task, rank)
        self.members[child.pid] = key
        ticks = processes.start_ticks(child.pid) or 0
        at = self._clock.now_ms()
        pid = {"k": "pid", "t": task, "r": rank, "pid": child.pid, "ticks": ticks, "at": at}
        held.record(pid)
        try:
            self.holds.begin(held.attempt.order, key.task, key.rank, child.pid)
            held.write()
        except OSError:
            os.close(child.go_fd)  # It leaves unrun.
            raise
        self.changed.add(held.uid)
        self._crash.reached("pid-written")
        let_go(child)
        self._crash.reached("released")

    def _not_started(self, held: Held, live: LiveTask, text: str) -> None:
        cause = {"k": "cause", "t": live.task, "kind": FAILED, "code": NOT_RUNNABLE_CODE}
        self.record(held, cause)
        if not live.members:
            self._finish(held, live, f"it could not be started: {text}")

    def watch_runtime(self, held: Held, task: int, *, elapsed_s: float) -> None:
        """Stop the task when it has run for the order's longest time."""
        limit_s = held.attempt.order.max_runtime_s
        if limit_s:
            self.after(max(0.0, limit_s - elapsed_s), partial(self._overtime, held, task))

    def _overtime(self, held: Held, task: int) -> None:
        live = held.attempt.live.get(task)
        if live is not None and live.cause is None:
            self.give_up(held, live, (TIMED_OUT, 0), held.attempt.order.grace_s)

    # Stopping -----------------------------------------------------------------------------

    def give_up(self, held: Held, live: LiveTask, why: Outcome, grace_s: int) -> None:
        """Stop a task for a reason that becomes its outcome."""
        self.record(held, {"k": "cause", "t": live.task, "kind": why[0], "code": why[1]})
        self.effect(partial(self.stop, held, live, grace_s))

    def stop(self, held: Held, live: LiveTask, grace_s: float) -> None:
        """SIGTERM to the groups of all members, SIGKILL to their sessions after `grace_s`."""
        if grace_s <= 0:
            self._kill(held, live)
            return
        for member in live.members.values():
            if member.ended is None:
                # A stopped process would sleep through its grace.
                for number in (signal.SIGTERM, signal.SIGCONT):
                    self.holds.signal(held.attempt.order, member.pid, number)
        self.after(grace_s, partial(self._kill, held, live))

    def _kill(self, held: Held, live: LiveTask) -> None:
        if held.attempt.live.get(live.task) is not live:
            return
        for rank, member in list(live.members.items()):
            if member.ended is None:
                self.holds.kill(held.attempt.order, live.task, rank)
                processes.signal_group(member.pid, signal.SIGKILL)
                self._doomed.add(member.pid)
                if member.pid in self._drains:
                    self._drained(member.pid)

    def _kill_doomed(self) -> None:
        """The rest of the sessions just killed: one look at the machine for all of them."""
        doomed, self._doomed = self._doomed, set()
        if doomed:
            processes.kill_sessions(doomed)

    # Ending -------------------------------------------------------------------------------

    def _reap_one(self, pid: int) -> bool:
        key = self.members.get(pid)
        stopping = False
        if key is not None:
            stopping = self.attempts[key.uid].attempt.live[key.task].cause is not None
            if not stopping:
                # While the leader is a zombie its number belongs to its group for sure.
                processes.signal_group(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        if key is None:
            return True  # an orphan; what it leaves may be ours to end
        self._crash.reached("reaped")
        cpu_ms = round((usage.ru_utime + usage.ru_stime) * 1000)
        end = self.holds.outcome(self.attempts[key.uid].attempt.order, status)
        drain = Drain(key, end, cpu_ms, usage.ru_maxrss * 1024)
        self._drains[pid] = drain
        if not stopping or processes.group_is_empty(pid):
            self._drained(pid)
        return True

    def _drained(self, pid: int) -> None:
        drain = self._drains.pop(pid)
        del self.members[pid]
        held = self.attempts[drain.key.uid]
        self.member_ended(held, drain)

    def orphan_ended(self, pid: int) -> None:
        """A process of an earlier keeper is gone; nobody saw how it ended."""
        key = self.members[pid]
        live = self.attempts[key.uid].attempt.live[key.task]
        self._drains[pid] = Drain(key, (LOST, 0), 0, 0)
        if live.cause is None:
            strays.kill_marked(self.attempts[key.uid], key.task)
            self._drained(pid)
        elif processes.group_is_empty(pid):
            self._drained(pid)

    def member_ended(self, held: Held, drain: Drain) -> None:
        """Record the exit of a process, and what follows from it for its task."""
        key = drain.key
        live = held.attempt.live[key.task]
        drain.end = self.holds.end(held.attempt.order, key.task, key.rank, drain.end)
        kind, code = drain.end
        peak = self._peak_rss.get((key.uid, key.task), 0)
        exit_record = {"k": "exit", "t": key.task, "r": key.rank, "kind": kind, "code": code}
        usage = {"cpu": drain.cpu_ms, "rss": max(drain.rss_bytes, peak)}
        self.record(held, exit_record | usage)
        self._crash.reached("exit-appended")
        if all(member.ended is not None for member in live.members.values()):
            self._finish(held, live, UNSEEN if live.outcome()[0] == LOST else "")
        elif kind != SUCCEEDED and live.cause is None:
            # One lost member ends them all: the others would wait for it for ever.
            self.give_up(held, live, drain.end, held.attempt.order.grace_s)

    def _finish(self, held: Held, live: LiveTask, text: str) -> None:
        key = (held.uid, live.task)
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic_s()
        began_s = self._started_s.pop(key, None)
        wall_ms = now_ms - live.started_ms if began_s is None else (now_s - began_s) * 1000
        self._peak_rss.pop(key, None)
        self.holds.clear(held.attempt.order, live.task)
        kind, code = live.outcome()
        ends = {"k": "task", "t": live.task, "kind": kind, "code": code, "at": now_ms}
        self.record(held, ends | {"wall": max(0, round(wall_ms)), "text": text})
        self._startable.add(held.uid)
        label = held.attempt.order.task_label(live.task)
        for rank in range(held.attempt.order.replicas):
            capture.close_off(held.place.log(label, rank))
        self.settle(held)

    def lose(self, held: Held, live: LiveTask, text: str) -> None:
        """End a task none of whose processes is left, after a restart of the keeper."""
        if live.cause is None:
            self.record(held, {"k": "cause", "t": live.task, "kind": LOST, "code": 0})
        self._finish(held, live, text)

    def settle(self, held: Held) -> None:
        """Record the end of an attempt if there is nothing left to do for it."""
        if held.attempt.is_over():
            kind, code = held.attempt.gravest()
            at, text = self._clock.now_ms(), FENCED_TEXT if kind == FENCED else ""
            self.record(held, {"k": "end", "at": at, "kind": kind, "code": code, "text": text})
            self._startable.discard(held.uid)
