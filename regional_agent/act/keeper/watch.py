"""Looking after running tasks once a second: memory limits and the size of their logs."""

from __future__ import annotations

from typing import Any

from regional_agent.act.keeper import capture, processes
from regional_agent.act.keeper.attempt import OUT_OF_MEMORY, LiveTask
from regional_agent.act.keeper.clock import KeeperClock
from regional_agent.act.keeper.held import Held
from regional_agent.act.keeper.processes import SessionUse
from regional_agent.act.keeper.runner import Runner

LOOK_S = 1.0


class Watch:
    """Memory is watched, not limited by rlimit: RLIMIT_AS and RLIMIT_DATA count address space,
    which many programs reserve by the terabyte and never use."""

    def __init__(self, runner: Runner, clock: KeeperClock) -> None:
        self._runner = runner
        self._clock = clock
        self._due = False

    def keep_looking(self) -> None:
        """Called once a turn: has the next look arranged while anything runs."""
        if not self._due and self._runner.members:
            self._due = True
            self._runner.after(LOOK_S, self._look)

    def _look(self) -> None:
        self._due = False
        running = [(h, live) for h in self._runner.attempts.values() for live in _live(h)]
        limited = any(held.attempt.order.memory_bytes for held, _ in running)
        sessions = processes.sessions() if limited else {}
        for held, live in running:
            self._look_at_logs(held, live)
            if held.attempt.order.memory_bytes:
                self._look_at_memory(held, live, sessions)

    def _look_at_logs(self, held: Held, live: LiveTask) -> None:
        label = held.attempt.order.task_label(live.task)
        for rank in live.members:
            capture.rein_in(held.place.log(label, rank))

    def _look_at_memory(self, held: Held, live: LiveTask, sessions: dict[int, SessionUse]) -> None:
        limit = held.attempt.order.memory_bytes
        for member in live.members.values():
            use = sessions.get(member.pid)
            if use is None or member.ended is not None:
                continue
            self._runner.saw_memory(held.uid, live.task, use.rss_bytes)
            # Resident pages shared between its processes are counted double in rss_bytes.
            over = use.rss_bytes > limit and processes.proportional_bytes(use.pids) > limit
            if over and live.cause is None:
                self._runner.give_up(held, live, (OUT_OF_MEMORY, 0), 0)

    def usage(self, uids: list[str]) -> dict[str, list[Any]]:
        """Per running attempt: now, wall_ms and cpu_ms so far, rss_bytes, processes."""
        now_ms = self._clock.now_ms()
        sessions = processes.sessions()
        samples: dict[str, list[Any]] = {}
        for uid in uids:
            held = self._runner.attempts.get(uid)
            if held is None or not held.attempt.live:
                continue
            attempt = held.attempt
            wall_ms, cpu_ms, rss_bytes, count = attempt.wall_ms, attempt.cpu_ms, 0, 0
            for live in attempt.live.values():
                wall_ms += max(0, now_ms - live.started_ms)
                cpu_ms += live.cpu_ms
                for member in live.members.values():
                    use = None if member.ended is not None else sessions.get(member.pid)
                    if use is not None:
                        cpu_ms += use.cpu_ms
                        rss_bytes += use.rss_bytes
                        count += len(use.pids)
            samples[uid] = [now_ms, wall_ms, cpu_ms, rss_bytes, count]
        return samples


def _live(held: Held) -> list[LiveTask]:
    return [] if held.attempt.outcome is not None else list(held.attempt.live.values())
