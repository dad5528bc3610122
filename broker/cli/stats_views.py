"""What decisions gained, and how predictions came true, as tables and lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cli.formatting import NONE, count, mapping, mappings, number, seconds, text, usd
from broker.cli.output import Column, Table

Document = Mapping[str, Any]
_KINDS = {"start": "start of a placed job", "wait": "wait for room"}


def gain_table(found: Document) -> Table:
    """One line per day: decisions, and what they gained over the floor."""
    table = Table(
        (
            Column("day"), Column("decisions", right=True), Column("proved", right=True),
            Column("measured", right=True), Column("gained in", right=True),
            Column("saved", right=True), Column("sooner", right=True),
            Column("started more", right=True), Column("waited less", right=True),
        ),
        empty="nothing was decided in these days",
    )  # fmt: skip
    for day in mappings(found.get("days")):
        gain = mapping(day.get("gain"))
        table.rows.append((
            text(day.get("day")), count(day.get("decisions")), count(day.get("optimal")),
            count(gain.get("measured")), count(gain.get("gaining")), usd(gain.get("saved_usd")),
            seconds(gain.get("sooner_s")), count(_more(gain)), seconds(gain.get("wait_saved_s")),
        ))  # fmt: skip
    return table


def _more(gain: Document) -> float | None:
    more, fewer = number(gain.get("more_copies")), number(gain.get("fewer_copies"))
    return None if more is None or fewer is None else more - fewer


def verdicts(found: Document) -> list[str]:
    """What each measured day comes to, in one sentence; also that it comes to nothing."""
    return [
        f"{text(day.get('day'))}: {_verdict(mapping(day.get('gain')))}"
        for day in mappings(found.get("days"))
        if number(mapping(day.get("gain")).get("measured"))
    ]


def _verdict(gain: Document) -> str:
    measured = number(gain.get("measured")) or 0.0
    saved, more = number(gain.get("saved_usd")) or 0.0, _more(gain) or 0.0
    sooner = number(gain.get("sooner_s")) or 0.0
    if not number(gain.get("gaining")) and saved <= 0 and sooner <= 0:
        floor = "the greedy floor (each job in turn to its cheapest place)"
        return f"nothing gained over {floor} in {measured:,.0f} measured decisions"
    parts = []
    if saved:
        floor_usd = number(gain.get("floor_cost_usd"))
        share = f" ({abs(saved) / floor_usd:.1%} of the floor's cost)" if floor_usd else ""
        parts.append(f"the same copies cost {usd(abs(saved))} {_than(saved, 'less')}{share}")
    if round(sooner, 1):
        parts.append(f"they start {seconds(abs(sooner))} {_than(sooner, 'sooner')} in all")
    if more:
        copies = "copy" if abs(more) == 1 else "copies"
        parts.append(f"{abs(more):,.0f} {copies} {_than(more, 'more')} started at once")
    return "; ".join(parts) or "places differ, the sums do not"


def _than(amount: float, word: str) -> str:
    opposite = {"less": "more", "sooner": "later", "more": "fewer"}
    return word if amount > 0 else opposite[word]


def calibration_table(found: Document) -> Table:
    """Predicted starts by day and kind: how many came true within p50 and within p90."""
    table = Table(
        (
            Column("day"), Column("prediction"), Column("made", right=True),
            Column("within p50 (50%)", right=True), Column("within p90 (90%)", right=True),
        ),
        empty="",
    )  # fmt: skip
    for day in mappings(found.get("days")):
        for kind in mappings(day.get("calibration")):
            name = text(kind.get("kind"))
            table.rows.append((
                text(day.get("day")), _KINDS.get(name, name), count(kind.get("predictions")),
                _share(kind.get("within_p50")), _share(kind.get("within_p90")),
            ))  # fmt: skip
    return table


def _share(value: object) -> str:
    found = number(value)
    return NONE if found is None else f"{found:.0%}"
