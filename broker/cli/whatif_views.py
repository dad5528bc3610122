"""Today beside a changed world, as tables and lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cli.exits import note
from broker.cli.formatting import (
    NONE,
    Now,
    at,
    count,
    mapping,
    mappings,
    moment,
    number,
    seconds,
    text,
    usd,
)
from broker.cli.output import Column, Table, say, show
from broker.cli.replay_views import percent

Document = Mapping[str, Any]
_SIDES = ("today", "whatif")


def show_worlds(
    told: Document, now: Now, titles: tuple[str, str] = ("today", "what if")
) -> None:
    """All of an answer: both sides, what it comes to, and who moves."""
    show(side_table(told, now, titles))
    say()
    for line in whatif_lines(told):
        say(line)
    if mappings(told.get("moves")):
        say()
        show(move_table(told, titles).without_blank_columns())
    for remark in told.get("notes") or ():
        note(f"note: {text(remark)}")


def side_table(
    told: Document, now: Now, titles: tuple[str, str] = ("today", "what if")
) -> Table:
    """One line per figure, both sides in two columns."""
    table = Table((Column(""), *(Column(title, right=True) for title in titles)))
    tiers = {tier for name in _SIDES for tier in mapping(at(told, name, "placed"))}
    for tier in sorted(tiers, key=lambda word: -int(word) if word.isdigit() else 0):
        row = [count(at(told, name, "placed", tier)) for name in _SIDES]
        table.rows.append((f"accelerators placed, priority {tier}", *row))
    table.rows.append(("copies placed", *(count(at(told, name, "copies")) for name in _SIDES)))
    table.rows.append(("copies that wait", *(count(at(told, name, "waiting")) for name in _SIDES)))
    table.rows.append(("cost", *(usd(at(told, name, "cost_usd")) for name in _SIDES)))
    for cluster in sorted(_clusters(told, "starts")):
        row = [_starts(told, name, cluster) for name in _SIDES]
        table.rows.append((f"start now in {cluster}", *row))
    for cluster in sorted(_clusters(told, "put_off")):
        row = [_put_off(told, name, cluster) for name in _SIDES]
        table.rows.append((f"put off in {cluster}", *row))
    for cluster in sorted(_clusters(told, "later")):
        row = [_later(told, name, cluster, now) for name in _SIDES]
        table.rows.append((f"expected later in {cluster}", *row))
    table.rows.append(("decided", *(_decided(mapping(told.get(name))) for name in _SIDES)))
    return table


def _clusters(told: Document, key: str) -> set[str]:
    return {
        text(row.get("cluster")) for name in _SIDES for row in mappings(at(told, name, key))
    }


def _row(told: Document, name: str, key: str, cluster: str) -> dict[str, Any]:
    rows = mappings(at(told, name, key))
    return next((row for row in rows if text(row.get("cluster")) == cluster), {})


def _starts(told: Document, name: str, cluster: str) -> str:
    row = _row(told, name, "starts", cluster)
    return f"{count(row.get('copies'))} in {seconds(row.get('start_s'))}" if row else NONE


def _put_off(told: Document, name: str, cluster: str) -> str:
    rows = [
        row for row in mappings(at(told, name, "put_off")) if text(row.get("cluster")) == cluster
    ]
    hours = [(count(row.get("copies")), number(row.get("start_h")) or 0.0) for row in rows]
    return ", ".join(f"{copies} to {hour:.4g} h from now" for copies, hour in hours) or NONE


def _later(told: Document, name: str, cluster: str, now: Now) -> str:
    row = _row(told, name, "later", cluster)
    if not row:
        return NONE
    first, last = moment(row.get("first_at"), now), moment(row.get("last_at"), now)
    until = "" if first == last else f" to {last}"
    return f"{count(row.get('jobs'))} from {first}{until}"


def _decided(side: Document) -> str:
    gap = percent(side.get("gap"))
    return text(side.get("status")) + ("" if gap == NONE else f", gap {gap}")


def whatif_lines(told: Document) -> list[str]:
    """Who moves and what it costs, in a line or two."""
    more = number(told.get("difference_usd")) or 0.0
    moved = number(told.get("moved")) or 0.0
    if not moved and not round(more, 4):
        return ["No job goes elsewhere, and the cost is the same."]
    one = moved == 1
    jobs = "1 job goes" if one else f"{moved:,.0f} jobs go"
    cost = "for the same cost" if not round(more, 4) else (
        f"for {usd(abs(more))} {'more' if more > 0 else 'less'}"
    )  # fmt: skip
    lines = [f"{jobs} elsewhere or {'comes' if one else 'come'} in or out, {cost}."]
    displaced = number(at(told, "running", "displaced")) or 0.0
    stay = count(at(told, "running", "stay"))
    if displaced:
        anew = "1 running attempt starts" if displaced == 1 else (
            f"{displaced:,.0f} running attempts start"
        )  # fmt: skip
        lines.append(f"{anew} anew, {stay} stay where they are.")
    return lines


def move_table(told: Document, titles: tuple[str, str] = ("today", "what if")) -> Table:
    """The jobs whose places differ."""
    table = Table(
        (
            Column("job"), Column("name"), Column("state", styled=True), Column("tenant"),
            *(Column(title, fold=True) for title in titles),
            Column("difference", right=True),
        ),
        empty="no job goes elsewhere",
    )  # fmt: skip
    for move in mappings(told.get("moves")):
        table.rows.append((
            text(move.get("job")), text(move.get("name")), text(move.get("state")),
            text(move.get("tenant")), _places(move, "before"), _places(move, "after"),
            usd(move.get("difference_usd")),
        ))  # fmt: skip
    return table


def _places(move: Document, side: str) -> str:
    places = mappings(at(move, side, "places"))
    if not places:
        waits = text(at(move, side, "waits"))
        return waits if waits == "not there" else f"waits: {waits}"
    return ", ".join(map(place_words, places))


def place_words(place: Document) -> str:
    """So many copies in a pool or its queue, or there later."""
    later_h = number(place.get("start_h"))
    return (
        f"{text(place.get('cluster'))}/{text(place.get('pool'))}"
        + (" (queue)" if place.get("queued") else "")
        + (f" in {later_h:.4g} h" if later_h else "")
        + (f" x {count(place.get('copies'))}" if place.get("copies") != 1 else "")
    )
