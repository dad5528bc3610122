"""Prices by the hour as a planning problem takes them. Pure."""

from __future__ import annotations

from broker.model.fleet import PoolPrice
from broker.model.problem import PriceWindow

_MS_PER_H = 3_600_000


def price_windows(price: PoolPrice | None, now_ms: int) -> tuple[PriceWindow, ...]:
    """The hours to come that have a price of their own, counted from now."""
    if price is None:
        return ()
    return tuple(
        PriceWindow(
            max(step.from_ms - now_ms, 0) / _MS_PER_H,
            (step.until_ms - now_ms) / _MS_PER_H,
            step.marginal_micro_usd / 1e6,
        )
        for step in price.steps
        if step.until_ms > now_ms
    )
