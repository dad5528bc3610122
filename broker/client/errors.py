"""What can go wrong between a person and the broker, each in one line with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a request: the `path` of the field, what is wrong, and what would be right."""

    path: str
    problem: str
    remedy: str
    value: str = ""

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        shown = f" (got {self.value})" if self.value else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{place}{self.problem}{shown}{remedy}"


@dataclass(frozen=True, slots=True)
class Problem:
    """An answer of the broker that is not what was asked for (RFC 9457, read leniently)."""

    status: int
    title: str
    detail: str = ""
    code: str = ""
    errors: tuple[Fault, ...] = ()
    request_id: str = ""
    retry_after_s: float | None = None
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """One line: what the broker said."""
        said = self.detail or self.title
        return said if len(said) <= 400 else f"{said[:397]}..."


class ClientError(Exception):
    """Anything this client raises. `text` is one line; `remedy` is what to do, or empty."""

    def __init__(self, text: str, remedy: str = "") -> None:
        super().__init__(f"{text}; {remedy}" if remedy else text)
        self.text = text
        self.remedy = remedy


class NotConfigured(ClientError):
    """Nothing says which broker to talk to."""


class BadConfiguration(ClientError):
    """What says which broker to talk to cannot be used."""


class NotReachable(ClientError):
    """The broker could not be reached, or could not answer, for as long as we were patient."""


class BadFile(ClientError):
    """A local file or directory cannot be sent, or a result cannot be written."""


class TimedOut(ClientError):
    """What was waited for did not happen in the time allowed."""


class Garbled(ClientError):
    """The answer is not one of a Tradewind broker."""


class Refused(ClientError):
    """The broker refused the request; `problem` is its answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.line, _remedy(problem))
        self.problem = problem


def _remedy(problem: Problem) -> str:
    if problem.status == 401:
        return "set TRADEWIND_TOKEN, or token in config.toml, to a valid token"
    if problem.status == 413:
        return "send less at once"
    return ""
