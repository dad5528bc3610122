"""Prices by the hour and closed hours as a planning problem takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.model.fleet import PoolPrice
from broker.model.problem import PriceWindow, Window
from federation.site_limits import ClosedWindow

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


def windows_ahead(windows: Iterable[ClosedWindow], now_ms: int) -> tuple[Window, ...]:
    """The hours to come in which nothing may run, those that meet as one; what is closed now is
    no matter of hours to come."""
    found: list[Window] = []
    for window in sorted(windows, key=lambda w: w.from_ms):
        if window.from_ms <= now_ms:
            continue
        begin_h, end_h = ((at - now_ms) / _MS_PER_H for at in (window.from_ms, window.until_ms))
        if found and begin_h <= found[-1].to_h:
            last = found.pop()
            begin_h, end_h = last.from_h, max(end_h, last.to_h)
        found.append(Window(begin_h, end_h, window.reason))
    return tuple(found)
