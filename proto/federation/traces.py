"""Traces as values: W3C trace context, spans, and where they go. Pure.

Ids are derived from what a span is about (a job, an attempt, a step of it), so that broker and
agent name the same span without telling each other, and a span told twice is the same span.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

TRACEPARENT = "TRACEPARENT"
"""Variable that carries the context into a job's environment."""

_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<more>-.*)?"
)
_SAMPLED = 1
STEPS = ("handshake", "prepare", "launch", "run")
"""Steps of an attempt in their order; each is a span below the attempt's."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A place in a trace: ids in lower-case hex. `span_id` is empty above the first span."""

    trace_id: str
    span_id: str = ""
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """As the W3C header has it."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def at(self, span_id: str) -> TraceContext:
        """Another place in the same trace."""
        return TraceContext(self.trace_id, span_id, self.sampled)


def parse_traceparent(text: str) -> TraceContext | None:
    """The context in a `traceparent`; None for what the W3C recommendation says to ignore."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or found["version"] == "ff":
        return None
    if found["version"] == "00" and found["more"]:
        return None
    if not found["trace"].strip("0") or not found["span"].strip("0"):
        return None
    sampled = bool(int(found["flags"], 16) & _SAMPLED)
    return TraceContext(found["trace"], found["span"], sampled)


def trace_id_of(job: str) -> str:
    """The trace of a job that was submitted outside any trace."""
    return hashlib.sha256(f"trace\n{job}".encode()).hexdigest()[:32]


def span_id_of(subject: str, step: str = "") -> str:
    """The span of a job or attempt, or of one step of it."""
    return hashlib.sha256(f"span\n{subject}\n{step}".encode()).hexdigest()[:16]


Attribute = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """A finished span; `parent_id` empty for the first of a trace. Times are UTC epoch ms.

    `kind` is internal, client or server; `error` says why it failed, empty where it did not.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    kind: str = "internal"
    error: str = ""


class SpanSink(Protocol):
    """Where finished spans go. Neither call waits for anything or raises."""

    @property
    def on(self) -> bool:
        """Whether anybody wants spans at all."""

    def samples(self, trace_id: str) -> bool:
        """Whether a trace that begins here is recorded."""

    def emit(self, spans: Sequence[Span]) -> None:
        """Take spans; what cannot be kept is dropped."""

    def close(self) -> None:
        """Send what is left, for at most a few seconds."""


class NoSpans:
    """`SpanSink` for nobody."""

    on = False

    def samples(self, trace_id: str) -> bool:
        """See `SpanSink`."""
        return False

    def emit(self, spans: Sequence[Span]) -> None:
        """See `SpanSink`."""

    def close(self) -> None:
        """See `SpanSink`."""


class KeptSpans(NoSpans):
    """`SpanSink` that keeps them, for tests and simulation."""

    on = True

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def samples(self, trace_id: str) -> bool:
        """See `SpanSink`."""
        return True

    def emit(self, spans: Sequence[Span]) -> None:
        """See `SpanSink`."""
        self.spans.extend(spans)

    def named(self, name: str) -> list[Span]:
        """Those of one name."""
        return [span for span in self.spans if span.name == name]
