"""Keeping a process running: started, looked at, started again after a growing pause.

A process is told by pid and start time, so one that another supervisor started can be taken over.
Nothing here has a deadline that passes while the machine sleeps: only an end makes a new start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.local.processes import MARK, Process, process_of

LOG_BYTES_MAX = 8 * 1024**2
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 30.0
"""A process that lived this long is taken to be well: the next pause is the first again."""
TAIL_BYTES = 2000
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "PYTHONPATH")


@dataclass(frozen=True, slots=True)
class Service:
    """What to run: `name` is unique in the federation, `log` takes what it prints."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path


def environment(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What services find in their environment: little of the user's, and whose they are."""
    kept = {name: environ[name] for name in _PASSED_ON if name in environ}
    # Jobs find programs where agents do; the last resort is the Python that runs all this.
    folders = [environ.get("PATH", os.defpath), os.path.dirname(sys.executable)]
    kept["PATH"] = os.pathsep.join(folders)
    return kept | {MARK: str(home), "PYTHONUNBUFFERED": "1"}


def launch(service: Service) -> subprocess.Popen[bytes]:
    """Start it in a session of its own, its output at the end of its log. Raises OSError."""
    service.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _turn_over(service.log)
    with service.log.open("ab") as log:
        os.fchmod(log.fileno(), 0o600)
        return subprocess.Popen(
            service.argv,
            env=dict(service.env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )


def _turn_over(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))


def tail(log: Path) -> str:
    """The last lines of a log, for a message."""
    try:
        data = log.read_bytes()[-TAIL_BYTES:]
    except OSError:
        return ""
    return data.decode("utf-8", "replace").strip()


class Kept:
    """One service and what became of it. `wanted` False lets it stay away once it has ended."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.wanted = True
        self.process: Process | None = None
        self.starts = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._begun_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._again_s: float | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs now."""
        if self._child is not None:
            # Also collects the exit status of one that ended.
            return self._child.poll() is None
        return self.process is not None and self.process.alive

    def start(self, now_s: float) -> None:
        """Start it; `now_s` is monotonic. Raises OSError."""
        self._child = launch(self.service)
        self.process = process_of(self._child.pid)
        self.starts += 1
        self._begun_s, self._again_s = now_s, None

    def adopt(self, process: Process, now_s: float) -> None:
        """Take over one that runs already."""
        self._child, self.process = None, process
        self._begun_s, self._again_s = now_s, None

    def look(self, now_s: float) -> str:
        """Start it again if it ended and the pause is over; what to tell, or nothing."""
        if self.alive or not self.wanted:
            return ""
        if self._again_s is None:
            if now_s - self._begun_s >= STEADY_S:
                self._pause_s = FIRST_PAUSE_S
            self._again_s = now_s + self._pause_s
            said = f"{self.service.name} ended ({self._how()}); starting it again"
            said += f" in {self._pause_s:g} s"
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
            return said
        if now_s < self._again_s:
            return ""
        try:
            self.start(now_s)
        except OSError as error:
            self._again_s = now_s + self._pause_s
            return f"{self.service.name} cannot be started: {error}"
        return f"{self.service.name} started again"

    def _how(self) -> str:
        code = self._child.returncode if self._child is not None else None
        if code is None:
            return "nobody saw how"
        if code < 0:
            return f"killed by {signal_name(-code)}"
        return f"exit code {code}"


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def module(*words: str) -> tuple[str, ...]:
    """The command line of a module of ours, with the interpreter that runs this."""
    return (sys.executable, "-m", *words)


def alive(kept: Sequence[Kept]) -> dict[str, Process]:
    """Those that run, by name."""
    return {k.service.name: k.process for k in kept if k.alive and k.process is not None}
