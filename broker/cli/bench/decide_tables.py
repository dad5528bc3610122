"""What `tradewind bench decide` prints: every decision, and then each size and load in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from broker.cli.output import Column, Table

Row = Mapping[str, Any]

_COLUMNS = (
    Column("problem"),
    Column("decided"),
    Column("status"),
    Column("cpu_s", right=True),
    Column("objective USD", right=True),
    Column("bound USD", right=True),
    Column("gap", right=True),
    Column("cost USD", right=True),
    Column("cost vs fifo", right=True),
    Column("placed vs fifo", right=True),
    Column("cost for as much", right=True),
    Column("could save", right=True),
    Column("moved", right=True),
    Column("peak MiB", right=True),
)
_SUMMARY = (
    Column("size and load"),
    Column("decided"),
    Column("cpu_s at most"),
    Column("gap at most (median)"),
    Column("cost vs fifo, by seed"),
    Column("for as much, by seed"),
    Column("could save, by seed"),
    Column("moved"),
    Column("peak MiB", right=True),
)


def every_decision(rows: Sequence[Row]) -> Table:
    """One line for each."""
    return Table(_COLUMNS, [_cells(row) for row in rows])


def by_size(rows: Sequence[Row], baselines: frozenset[str]) -> Table:
    """One line for each size, load and budget over all its seeds, baselines left out."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["how"] not in baselines:
            groups.setdefault((row["problem"].partition(" seed ")[0], row["how"]), []).append(row)
    return Table(_SUMMARY, [_summary(*key, group) for key, group in groups.items()])


def _summary(name: str, how: str, rows: Sequence[Row]) -> list[str]:
    gaps = [row["gap"] for row in rows if row["gap"] is not None]
    proved = sum(row["status"] == "optimal" for row in rows)
    gap = f"{max(gaps):.3%} ({median(gaps):.3%})" if gaps else "-"
    moved = [row["moved"] for row in rows if row["moved"] is not None]
    return [
        name,
        how,
        f"{max(row['cpu_s'] for row in rows):.2f}",
        f"0, {proved} of {len(rows)} proved" if proved == len(rows) else gap,
        " ".join(_percent(row["cost_share"], 1) for row in rows),
        " ".join(_percent(row["like_share"], 1) for row in rows),
        " ".join(_percent(row["saving_share"], 1, sign="") for row in rows),
        f"{max(moved):.2%}" if moved else "-",
        f"{max(row['peak_mib'] for row in rows):,.0f}",
    ]


def _cells(row: Row) -> list[str]:
    return [
        row["problem"],
        row["how"],
        row["status"],
        f"{row['cpu_s']:.2f}",
        f"{row['objective_usd']:,.0f}",
        "-" if row["bound_usd"] is None else f"{row['bound_usd']:,.0f}",
        "-" if row["gap"] is None else f"{row['gap']:.3%}",
        f"{row['cost_usd']:,.0f}",
        _percent(row["cost_share"], 1),
        _percent(row["placed_share"], 2),
        _percent(row["like_share"], 1),
        _percent(row["saving_share"], 1, sign=""),
        _percent(row["moved"], 2, sign=""),
        f"{row['peak_mib']:,.0f}",
    ]


def _percent(value: float | None, digits: int, sign: str = "+") -> str:
    return "-" if value is None else f"{value:{sign}.{digits}%}"
