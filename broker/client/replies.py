"""What comes of a request, by whatever way it went: an answer, a problem, or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from broker.client.errors import Fault, Garbled, Problem


class Lost(Exception):
    """No answer; `reason` in few words. `sent`: whether the broker may have heard the request."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


class Distrusted(Exception):
    """The broker's certificate is not to be trusted; `why` in few words."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Reply(Protocol):
    """The beginning of an answer."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    async def problem(self) -> Problem:
        """What it says is wrong, where the status is 400 or more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: status, headers, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    reason: str = ""

    def document(self) -> Any:
        """The JSON of the body; raises Garbled."""
        try:
            # NaN and Infinity are not JSON: read as unknown rather than passed on.
            return json.loads(self.body, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            raise Garbled(
                "the answer is not JSON", "check that the URL is that of a Tradewind broker"
            ) from None

    async def problem(self) -> Problem:
        """See `Reply`."""
        return problem_in(self)


def problem_in(answer: Answer) -> Problem:
    """The problem an answer >= 400 describes, whatever form it has."""
    try:
        document = json.loads(answer.body) if answer.body else {}
    except (ValueError, RecursionError):
        document = {}
    if not isinstance(document, dict):
        document = {}
    reason = answer.reason or "no reason given"
    return Problem(
        status=answer.status,
        title=_string(document.get("title")) or f"{answer.status} {reason}",
        detail=_string(document.get("detail")),
        code=_string(document.get("code")),
        errors=_faults(document.get("errors")),
        request_id=_string(document.get("request_id")),
        retry_after_s=retry_after_s(answer.headers),
        document=document,
    )


def _string(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _faults(value: object) -> tuple[Fault, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(
        Fault(
            _string(item.get("path")),
            _string(item.get("problem")),
            _string(item.get("remedy")),
            _string(item.get("value")),
        )
        for item in value
        if isinstance(item, dict)
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds the answer asks us to wait (a number, or a date set against its Date header)."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(min(int(text[:9]), 86_400))
    try:
        until, now = parsedate_to_datetime(text), parsedate_to_datetime(headers.get("Date", ""))
        return max((until - now).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None
