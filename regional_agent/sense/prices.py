"""Prices an operator types in: facts with a date and a source, valid for a stated time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from regional_agent.sense.reports import PoolPrice, PriceReport, PriceStep
from regional_agent.session.hours import Hours

MAX_MICRO_USD_PER_HOUR = 1_000_000_000
AHEAD_MS = 7 * 86_400_000
"""How far ahead a report tells prices by the hour."""


class PriceKind(StrEnum):
    """How a pool is paid for."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    OWNED = "owned"


class InvalidPrice(ValueError):
    """A declared price that cannot be right; names the pool and the rule."""


@dataclass(frozen=True, slots=True)
class HourlyPrice:
    """What an accelerator hour costs in these hours of the week."""

    hours: Hours
    marginal_micro_usd: int


@dataclass(frozen=True, slots=True)
class DeclaredPrice:
    """Per accelerator hour. `marginal` may be 0 only for what is owned; `valid_until_ms` 0 =
    open. `hours` have prices of their own, of several that hold the first;
    `preemptions_per_h` is how often spot capacity is taken back. Raises InvalidPrice."""

    pool: str
    kind: PriceKind
    marginal_micro_usd: int
    full_micro_usd: int
    as_of_ms: int
    source: str
    valid_from_ms: int = 0
    valid_until_ms: int = 0
    hours: tuple[HourlyPrice, ...] = ()
    preemptions_per_h: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is more likely a slip than a price."""
        hourly = [("price of some hours", h.marginal_micro_usd) for h in self.hours]
        for what, value in (
            ("marginal price", self.marginal_micro_usd),
            ("full price", self.full_micro_usd),
            *hourly,
        ):
            if not 0 <= value <= MAX_MICRO_USD_PER_HOUR:
                raise InvalidPrice(
                    f"pool {self.pool}: the {what} is not between 0 and "
                    f"{MAX_MICRO_USD_PER_HOUR // 1_000_000} USD per accelerator hour"
                )
        free = any(not h.marginal_micro_usd for h in self.hours) or not self.marginal_micro_usd
        if free and self.kind != PriceKind.OWNED:
            raise InvalidPrice(f"pool {self.pool}: what is {self.kind} is not free of charge")
        if self.preemptions_per_h and self.kind != PriceKind.SPOT:
            raise InvalidPrice(
                f"pool {self.pool}: preemptions_per_hour goes with kind spot, not {self.kind}"
            )
        if not self.source.strip():
            raise InvalidPrice(f"pool {self.pool}: a price needs a source")
        if self.valid_until_ms and self.valid_until_ms <= self.valid_from_ms:
            raise InvalidPrice(f"pool {self.pool}: the price ends before it begins")

    def holds_at(self, now_ms: int) -> bool:
        """True from `valid_from_ms` on and before `valid_until_ms`."""
        return self.valid_from_ms <= now_ms < (self.valid_until_ms or now_ms + 1)

    def steps(self, now_ms: int) -> tuple[PriceStep, ...]:
        """The coming hours with a price of their own, in order, none over another."""
        spans = [
            (begin, end, hourly.marginal_micro_usd)
            for hourly in self.hours
            for begin, end in hourly.hours.spans(now_ms, now_ms + AHEAD_MS)
        ]
        made: list[PriceStep] = []
        for begin, end in pairwise(sorted({edge for span in spans for edge in span[:2]})):
            price = next((usd for a, b, usd in spans if a <= begin and end <= b), None)
            if price is None:
                continue
            if made and (made[-1].until_ms, made[-1].marginal_micro_usd) == (begin, price):
                begin = made.pop().from_ms
            made.append(PriceStep(begin, end, price))
        return tuple(made)


def price_report(
    generation: int, declared: Sequence[DeclaredPrice], pools: Collection[str], now_ms: int
) -> PriceReport:
    """The price of every pool that has one now; of several, the one that began last.

    A pool without one is left out: its price is unknown, which is not free.
    """
    chosen: dict[str, DeclaredPrice] = {}
    for price in sorted(declared, key=lambda p: (p.valid_from_ms, p.as_of_ms)):
        if price.pool in pools and price.holds_at(now_ms):
            chosen[price.pool] = price
    told = (_reported(chosen[name], now_ms) for name in sorted(chosen))
    return PriceReport(generation, tuple(told))


def _reported(price: DeclaredPrice, now_ms: int) -> PoolPrice:
    return PoolPrice(
        price.pool,
        str(price.kind),
        price.marginal_micro_usd,
        price.full_micro_usd,
        price.as_of_ms,
        price.source,
        price.valid_until_ms,
        price.steps(now_ms),
        price.preemptions_per_h,
    )
