"""When what runs now will have ended, as far as anybody said. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.model.jobs import Attempt

RUNTIME_UNKNOWN_S = 24 * 3600


def end_ms(attempt: Attempt, expected_runtime_s: int | None, now_ms: int) -> int:
    """The instant an attempt is expected to end (UTC ms), later than now: by its expected runtime,
    else by the longest it may run."""
    runtime_s = expected_runtime_s or attempt.max_runtime_s or RUNTIME_UNKNOWN_S
    return max((attempt.started_ms or attempt.placed_ms) + runtime_s * 1000, now_ms + 1)


def ends_of(
    attempts: Iterable[Attempt], expected_runtime_s: Callable[[str], int | None], now_ms: int
) -> dict[str, list[tuple[int, int]]]:
    """By pool of the federation when its running work ends, and how many accelerators that frees.
    `expected_runtime_s` knows it by job."""
    ends: dict[str, list[tuple[int, int]]] = {}
    for attempt in attempts:
        if attempt.counts:
            at_ms = end_ms(attempt, expected_runtime_s(attempt.job), now_ms)
            pool = f"{attempt.cluster}/{attempt.pool}"
            ends.setdefault(pool, []).append((at_ms, attempt.accelerators))
    return ends
