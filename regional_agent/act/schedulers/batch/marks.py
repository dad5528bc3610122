"""What the marks of scripts say of an end."""

from __future__ import annotations

from pathlib import Path

from regional_agent.act.schedulers.port import Outcome, OutcomeKind

SIGNAL_BASE = 128
SIGNALS_MAX = 64


def outcome_of(code: int) -> Outcome:
    """An exit code as a shell tells it: above 128 a signal."""
    if code == 0:
        return Outcome(OutcomeKind.SUCCEEDED)
    if SIGNAL_BASE < code <= SIGNAL_BASE + SIGNALS_MAX:
        return Outcome(OutcomeKind.SIGNALLED, signal=code - SIGNAL_BASE)
    return Outcome(OutcomeKind.FAILED, exit_code=code)


def read_outcome(cause: str, code: int) -> tuple[Outcome, bool]:
    """How a task ended by the word of its script, and whether that is sure."""
    if cause in ("timed_out", "fenced"):
        return Outcome(OutcomeKind(cause)), True
    outcome = outcome_of(code)
    # Somebody told it to stop, or killed it: the batch system knows who, and whether it was for
    # want of memory.
    return outcome, cause == "exit" and code not in (SIGNAL_BASE + 9, SIGNAL_BASE + 15)


def read_cpu_ms(times: list[str]) -> int:
    """Of the children, as `times` prints it: `0m1.25s 0m0.03s`, shell first."""
    try:
        parts = times[1].replace("s", "").split()
        return round(sum(int(m) * 60 + float(s) for m, s in (p.split("m") for p in parts)) * 1000)
    except (IndexError, ValueError):
        return 0


def made_ms_of(path: Path) -> int:
    """Both ends of a run by one clock, that of the file system."""
    return path.stat().st_mtime_ns // 1_000_000
