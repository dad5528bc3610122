"""Turn figures into whole numbers for an integer solver, exactly where that is possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from broker.decide.terms import SLACK

_LARGEST_SCALE = 10**9
_LARGEST_SUM = 2**60
_FINE = 2**40

SLACK_FRACTION = Fraction(1, 10**9)


def scale_row(needs: Sequence[float], limit: float, most: Sequence[int]) -> tuple[list[int], int]:
    """Whole numbers (a, b) such that `sum(a * n) <= b` says what `sum(needs * n) <= limit` does
    with the slack of every limit, for 0 <= n <= most.

    Exact when the figures are short decimals or binary fractions; otherwise rounded to the safe
    side within the slack.
    """
    exact = _exact_row(needs, limit, most)
    if exact is not None:
        return exact
    scale = _FINE / max(limit, 1e-300)
    high = math.floor(_FINE * (1 + SLACK))
    over = high + 1
    return [over if a > limit * 2 else math.ceil(a * scale) for a in needs], high


def _exact_row(
    needs: Sequence[float], limit: float, most: Sequence[int]
) -> tuple[list[int], int] | None:
    figures = [*set(needs), limit]
    for read in (_decimal, Fraction):
        fractions = [read(figure) for figure in figures]
        scale = math.lcm(*(figure.denominator for figure in fractions))
        if scale > _LARGEST_SCALE:
            continue
        whole = {f: int(x * scale) for f, x in zip(figures, fractions, strict=True)}
        high = math.floor(fractions[-1] * scale * (1 + SLACK_FRACTION))
        scaled = [whole[need] for need in needs]
        largest = sum(a * n for a, n in zip(scaled, most, strict=True))
        if max(largest, high) <= _LARGEST_SUM:
            return _reduced(scaled, high)
    return None


def _decimal(figure: float) -> Fraction:
    return Fraction(repr(float(figure)))


def _reduced(scaled: list[int], high: int) -> tuple[list[int], int]:
    common = math.gcd(*scaled)
    return ([a // common for a in scaled], high // common) if common > 1 else (scaled, high)


def money_unit(largest_usd: float) -> float:
    """The USD that one whole number stands for when sums reach `largest_usd`: a micro-USD, or the
    power of ten above it that keeps sums within 2^60."""
    unit = 1e-6
    while largest_usd / unit > _LARGEST_SUM:
        unit *= 10
    return unit
