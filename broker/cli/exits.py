"""Exit codes, and errors as a few lines on stderr with what to do about them."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.client.errors import ClientError, Refused


class Exit(IntEnum):
    """What the exit codes of every command mean (docs/cli.md)."""

    OK = 0
    JOB_FAILED = 1
    BAD_INPUT = 2
    NOT_FOUND = 3
    NOT_ALLOWED = 4
    NOT_REACHABLE = 5
    TIMEOUT = 6
    FAULT = 70
    INTERRUPTED = 130
    CLOSED_PIPE = 141


class Failure(Exception):
    """A command cannot go on: lines for stderr, and the exit code."""

    def __init__(self, code: Exit, text: str, remedy: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.remedy = remedy


def complain(text: str, remedy: str = "") -> None:
    """One fault on stderr: what is wrong, and what to do about it."""
    sys.stderr.write(f"tradewind: {text}\n")
    if remedy:
        sys.stderr.write(f"  {remedy}\n")


def note(text: str) -> None:
    """One line on stderr that is no fault."""
    sys.stderr.write(f"{text}\n")


def report(error: ClientError) -> Exit:
    """Say what a client error means, and give its exit code."""
    from broker.client import errors

    if isinstance(error, errors.Refused):
        return _report_refused(error)
    complain(error.text, error.remedy)
    if isinstance(error, errors.TimedOut):
        return Exit.TIMEOUT
    if isinstance(error, errors.NotReachable | errors.NotConfigured | errors.Garbled):
        return Exit.NOT_REACHABLE
    return Exit.BAD_INPUT


def _report_refused(error: Refused) -> Exit:
    problem = error.problem
    code = exit_of_status(problem.status)
    remedy = error.remedy
    if problem.status >= 500 and problem.request_id:
        remedy = f"the broker's log knows more under request {problem.request_id}"
    complain(problem.line, remedy)
    # A problem with one fault often says it in its one line already.
    faults = [fault for fault in problem.errors if str(fault) != problem.line]
    for fault in faults[:20]:
        sys.stderr.write(f"  {fault}\n")
    if len(faults) > 20:
        sys.stderr.write(f"  ... and {len(faults) - 20} more\n")
    return code


def exit_of_status(status: int) -> Exit:
    """The exit code of an HTTP status >= 400."""
    if status == 404 or status == 410:
        return Exit.NOT_FOUND
    if status in (401, 403, 409):
        return Exit.NOT_ALLOWED
    return Exit.NOT_REACHABLE if status >= 500 or status == 429 else Exit.BAD_INPUT


def exit_of_job(job: dict[str, Any]) -> Exit:
    """0 for a job that succeeded, else 1."""
    outcome = job.get("outcome")
    kind = outcome.get("kind") if isinstance(outcome, dict) else outcome
    return Exit.OK if kind == "succeeded" else Exit.JOB_FAILED
