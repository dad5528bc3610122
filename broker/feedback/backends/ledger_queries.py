"""The longer questions that the SQL ledger asks."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Row,
    Select,
    Table,
    case,
    cast,
    func,
    literal_column,
    select,
)

from broker.feedback import ledger_schema as schema
from broker.feedback.decision_entries import GainTotal

DAY_MS: Final = 86_400_000


def numbers(row: Row[Any]) -> dict[str, Any]:
    """The values of a row; PostgreSQL sums bigint as numeric, which arrives as Decimal."""
    return {
        name: value if isinstance(value, str) else int(value)
        for name, value in row._mapping.items()
    }


def outcomes_query(tenant: str | None, from_ms: int, to_ms: int) -> Select[Any]:
    """Jobs by tenant and outcome."""
    table = schema.jobs
    group = (table.c.tenant, table.c.outcome)
    query = select(
        *group,
        func.count(table.c.job).label("jobs"),
        func.sum(table.c.cost_micro_usd).label("cost_micro_usd"),
    ).where(table.c.ended_ms >= from_ms, table.c.ended_ms < to_ms)
    if tenant is not None:
        query = query.where(table.c.tenant == tenant)
    return query.group_by(*group).order_by(*group)


def usage_query(tenant: str | None, from_ms: int, to_ms: int) -> Select[Any]:
    """Usage by tenant, cluster, pool and accelerator."""
    table = schema.usage
    group = [table.c[name] for name in ("tenant", "cluster", "pool", "accelerator")]
    summed = ("accelerator_ms", "cpu_ms", "memory_mib_s", "cost_micro_usd")
    query = select(
        *group,
        func.count(table.c.attempt.distinct()).label("attempts"),
        *(func.sum(table.c[name]).label(name) for name in summed),
    ).where(table.c.to_ms >= from_ms, table.c.to_ms < to_ms)
    if tenant is not None:
        query = query.where(table.c.tenant == tenant)
    return query.group_by(*group).order_by(*group)


def gains_query(from_ms: int, to_ms: int) -> Select[Any]:
    """Gains over the floor, by day."""
    table, day = schema.gains, _day(schema.gains)
    own = {field.name for field in fields(GainTotal)} - {"day", "measured", "gaining"}
    gaining = (table.c.saved_micro_usd > 0) | (table.c.more_copies > 0)
    query = select(
        day.label("day"),
        func.count().label("measured"),
        func.sum(_one_if(gaining)).label("gaining"),
        *(func.sum(table.c[name]).label(name) for name in sorted(own)),
    )
    return _by_day(query, table, from_ms, to_ms)


def calibration_query(from_ms: int, to_ms: int) -> Select[Any]:
    """Predictions by day and kind, and how many came true."""
    table, day = schema.predictions, _day(schema.predictions)
    query = select(
        day.label("day"),
        table.c.kind,
        func.count().label("predictions"),
        func.sum(_one_if(table.c.actual_ms <= table.c.p50_ms)).label("within_p50"),
        func.sum(_one_if(table.c.actual_ms <= table.c.p90_ms)).label("within_p90"),
    )
    return _by_day(query, table, from_ms, to_ms, table.c.kind)


def cycles_query(from_ms: int, to_ms: int) -> Select[Any]:
    """Decisions by day."""
    table, day = schema.cycles, _day(schema.cycles)
    query = select(
        day.label("day"),
        func.count().label("cycles"),
        func.sum(_one_if(table.c.status == "optimal")).label("optimal"),
        func.sum(table.c.placed).label("placed"),
    )
    return _by_day(query, table, from_ms, to_ms)


def _by_day(
    query: Select[Any], table: Table, from_ms: int, to_ms: int, *more: ColumnElement[Any]
) -> Select[Any]:
    group = (_day(table), *more)
    within = query.where(table.c.at_ms >= from_ms, table.c.at_ms < to_ms)
    return within.group_by(*group).order_by(*group)


def _day(table: Table) -> ColumnElement[int]:
    # Both databases divide integers as integers; a bound number would be another one each time.
    return cast(table.c.at_ms // literal_column(str(DAY_MS)), BigInteger)


def _one_if(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return case((condition, 1), else_=0)
