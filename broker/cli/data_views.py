"""How fast data comes between regions, as a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cli.formatting import count, gbits, mappings, short, text
from broker.cli.output import Column, Table


def data_rate_table(latency: Mapping[str, Any]) -> Table:
    """How fast data of a region came to each site that reads some."""
    table = Table(
        (
            Column("data from"), Column("to"), Column("cluster"), Column("speed", right=True),
            Column("readings", right=True), Column("age", right=True), Column("read at"),
            Column("not used"),
        ),
        empty="",
    )  # fmt: skip
    for rate in mappings(latency.get("data_rates")):
        table.rows.append((
            text(rate.get("from_region")), text(rate.get("to_region")), text(rate.get("cluster")),
            gbits(rate), count(rate.get("readings")), short(rate.get("age_s")),
            text(rate.get("target")), text(rate.get("flagged")),
        ))  # fmt: skip
    return table.without_blank_columns()
