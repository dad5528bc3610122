"""What goes between the broker and its deciding process: one question, one answer, each a length
and a pickled value. Both ends are ours, from the same build; nothing else writes here."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from broker.model.plan import Plan
from broker.model.problem import Problem
from broker.model.warm import Warm

HEADER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Question:
    """Decide this within so many CPU seconds, from what the last decision left; without a problem,
    get ready. `in_line` when it is one of a line of problems that are much alike: what was found
    for the last one is taken over, and kept for the next."""

    problem: Problem | None
    cpu_s: float
    warm: Warm | None = None
    in_line: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The verified plan and what it took, or why there is none."""

    plan: Plan | None
    cpu_s: float = 0.0
    failure: str = ""


def packed(value: Question | Reply) -> bytes:
    """A frame."""
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def body_bytes(header: bytes) -> int:
    """How many bytes follow a header."""
    return int.from_bytes(header, "big")


def unpacked(body: bytes) -> Any:
    """The value in a frame."""
    return pickle.loads(body)
