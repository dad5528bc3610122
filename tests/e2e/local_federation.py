"""`tradewind up` as a person uses it: commands in processes of their own, a home of the test's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.local.layout import Home
from broker.local.processes import Found, find
from broker.local.record import Record, read_record

COMMAND_WITHIN_S = 120.0


def until(holds: Callable[[], Any], within_s: float, what: str) -> Any:
    """Wait until a condition holds; fails with `what` after a while."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        if found := holds():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {within_s:g} s: {what}")


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as one JSON document."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Laptop:
    """A machine with a federation in `home`."""

    root: Path

    @property
    def home(self) -> Home:
        """Where it lives."""
        return Home(self.root)

    @property
    def environment(self) -> dict[str, str]:
        """Of the commands: nothing of the user's own configuration."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return kept | {"HOME": str(self.root.parent), "TRADEWIND_HOME": str(self.root)}

    def run(self, *words: str, within_s: float = COMMAND_WITHIN_S) -> Answer:
        """Run `tradewind WORDS`."""
        done = subprocess.run(
            [sys.executable, "-m", "broker", *words],
            env=self.environment, cwd=self.root.parent, capture_output=True, text=True,
            timeout=within_s, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return Answer(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str) -> Answer:
        """Run it; it has to succeed."""
        answer = self.run(*words)
        assert answer.code == 0, f"{' '.join(words)}: {answer.code}\n{answer.err}\n{answer.out}"
        return answer

    def submit(self, *words: str) -> str:
        """Submit and say the id."""
        return str(self.ok("submit", "--json", *words).json["id"])

    def job(self, job_id: str) -> Any:
        """A job as the API shows it."""
        return self.ok("show", "--json", job_id).json

    def clusters(self) -> dict[str, Any]:
        """Clusters by name; nothing while the broker does not answer."""
        answer = self.run("clusters", "--json")
        return {c["name"]: c for c in answer.json["clusters"]} if answer.code == 0 else {}

    @property
    def record(self) -> Record:
        """What runs."""
        record = read_record(self.home)
        assert record is not None, "nothing runs"
        return record

    @property
    def processes(self) -> Found:
        """Everything that is of this federation, but for a supervisor in the foreground."""
        return find(self.home.root, self.home.agents)

    def all_pids(self) -> set[int]:
        """Of everything, the supervisor included."""
        supervisor = self.record.supervisor
        return {p.pid for p in self.processes.all} | ({supervisor.pid} if supervisor else set())

    def signal_all(self, number: int) -> set[int]:
        """Signal everything at once, as a machine that goes to sleep or wakes."""
        pids = self.all_pids()
        for pid in pids:
            os.kill(pid, number)
        return pids

    def clean_up(self) -> None:
        """End whatever is left."""
        for pid in [p.pid for p in self.processes.all]:
            os.kill(pid, signal.SIGCONT)
        self.run("down")


