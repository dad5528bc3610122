"""Prices an operator types in: facts with a date and a source, valid for a stated time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from regional_agent.sense.reports import PoolPrice, PriceReport

MAX_MICRO_USD_PER_HOUR = 1_000_000_000


class PriceKind(StrEnum):
    """How a pool is paid for."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    OWNED = "owned"


class InvalidPrice(ValueError):
    """A declared price that cannot be right; names the pool and the rule."""


@dataclass(frozen=True, slots=True)
class DeclaredPrice:
    """Per accelerator hour. `marginal` may be 0 only for what is owned; `valid_until_ms` 0 =
    open. Raises InvalidPrice."""

    pool: str
    kind: PriceKind
    marginal_micro_usd: int
    full_micro_usd: int
    as_of_ms: int
    source: str
    valid_from_ms: int = 0
    valid_until_ms: int = 0

    def __post_init__(self) -> None:
        """Refuse what is more likely a slip than a price."""
        for what, value in (
            ("marginal", self.marginal_micro_usd),
            ("full", self.full_micro_usd),
        ):
            if not 0 <= value <= MAX_MICRO_USD_PER_HOUR:
                raise InvalidPrice(
                    f"pool {self.pool}: the {what} price is not between 0 and "
                    f"{MAX_MICRO_USD_PER_HOUR // 1_000_000} USD per accelerator hour"
                )
        if self.marginal_micro_usd == 0 and self.kind != PriceKind.OWNED:
            raise InvalidPrice(f"pool {self.pool}: what is {self.kind} is not free of charge")
        if not self.source.strip():
            raise InvalidPrice(f"pool {self.pool}: a price needs a source")
        if self.valid_until_ms and self.valid_until_ms <= self.valid_from_ms:
            raise InvalidPrice(f"pool {self.pool}: the price ends before it begins")

    def holds_at(self, now_ms: int) -> bool:
        """True from `valid_from_ms` on and before `valid_until_ms`."""
        return self.valid_from_ms <= now_ms < (self.valid_until_ms or now_ms + 1)


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
    return PriceReport(generation, tuple(_reported(chosen[name]) for name in sorted(chosen)))


def _reported(price: DeclaredPrice) -> PoolPrice:
    return PoolPrice(
        price.pool,
        str(price.kind),
        price.marginal_micro_usd,
        price.full_micro_usd,
        price.as_of_ms,
        price.source,
        price.valid_until_ms,
    )
