"""Stored decisions: the problem of a cycle with its plan, so that it can be decided again.

A decision is one gzip file in the form of docs/planning-problem.md. How many are kept is bounded;
those with a gap or an alarm outlive the others. Backends are in `backends/`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

CYCLE_PATTERN: Final = r"[0-9]{1,12}\.[0-9]{1,12}"
WHYS: Final = ("", "gap", "alarm")
"""Why a decision is kept longer than others; empty: it is not."""


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """One stored decision: of which cycle, when it was stored (UTC ms), its size, and why it is
    kept longer than others (one of `WHYS`)."""

    cycle: str
    stored_ms: int
    size_bytes: int
    why: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """Later cycles are greater."""
        epoch, _, number = self.cycle.partition(".")
        return int(epoch), int(number)


@dataclass(frozen=True, slots=True)
class DecisionLimits:
    """At most so many bytes in all; of decisions without a `why` the `newest` only."""

    newest: int = 200
    size_bytes: int = 256 * 1024 * 1024


def check_cycle(cycle: str) -> str:
    """The name of a cycle, if it is one (so also safe as a file name); else ValueError."""
    if not re.fullmatch(CYCLE_PATTERN, cycle, re.ASCII):
        raise ValueError("a cycle is named <epoch>.<number>, such as 3.1204")
    return cycle


def superseded(stored: Sequence[StoredDecision], limits: DecisionLimits) -> list[str]:
    """The cycles to remove, so that the rest is within the limits: first ordinary ones beyond the
    newest, then the oldest ordinary ones, then the oldest of all. The newest of all stays."""
    newest_first = sorted(stored, key=lambda item: item.order, reverse=True)
    plain = [item for item in newest_first if not item.why]
    special = [item for item in newest_first if item.why]
    gone = plain[limits.newest :]
    left_bytes = sum(item.size_bytes for item in stored) - sum(item.size_bytes for item in gone)
    oldest_first = [*reversed(plain[: limits.newest]), *reversed(special)]
    for item in oldest_first:
        if left_bytes <= limits.size_bytes:
            break
        if item is not newest_first[0]:
            gone.append(item)
            left_bytes -= item.size_bytes
    return [item.cycle for item in gone]


class DecisionStore(Protocol):
    """Stored decisions of one replica. Malformed cycles raise ValueError, disk errors
    `FeedbackUnavailable`."""

    async def put(self, cycle: str, why: str, body: bytes) -> None:
        """Store a decision, and remove what that supersedes. A repeat replaces."""

    async def get(self, cycle: str) -> bytes | None:
        """The gzip file as stored; None where it is not kept (any more)."""

    async def stored(self) -> tuple[StoredDecision, ...]:
        """What is kept, the newest first."""
