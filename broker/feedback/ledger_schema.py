"""The ledger's tables, and how an older database becomes this version.

Plain SQL types that SQLite and PostgreSQL share; every instant and amount is a 64-bit integer.
Column names are the field names of `entries`. To change the schema: change the table here,
append a `Migration` with the statements that bring an existing database there, and nothing
else; a fresh database is created from the tables and stamped with the newest version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Insert,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import sqlite

from broker.feedback.ports import SchemaTooNew

BASE_VERSION: Final = 1
_MIGRATION_LOCK: Final = 0x74776C64  # "twld"; any number, the same in every replica

metadata = MetaData()

# SQLite numbers rows only for a column declared INTEGER.
_Position = BigInteger().with_variant(Integer, "sqlite")


def _big(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=False)


def _maybe_big(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=True)


def _text(name: str) -> Column[Any]:
    return Column(name, Text, nullable=False)


versions = Table(
    "ledger_versions",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    _big("applied_ms"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("job", Text, primary_key=True),
    *(_text(name) for name in ("tenant", "name", "kind", "subject", "outcome", "reason")),
    *(_text(name) for name in ("clusters", "labels_json")),
    Column("spec_json", LargeBinary, nullable=False),
    *(_big(name) for name in ("created_ms", "ended_ms", "priority", "attempts")),
    *(_big(f"tasks_{name}") for name in ("total", "succeeded", "failed", "cancelled")),
    _big("cost_micro_usd"),
    *(_maybe_big(name) for name in ("started_ms", "exit_code")),
    Index("jobs_by_tenant", "tenant", "created_ms", "job"),
    Index("jobs_by_age", "created_ms", "job"),
    Index("jobs_by_end", "ended_ms"),
)

job_labels = Table(
    "job_labels",
    metadata,
    *(_text(name) for name in ("job", "key", "value")),
    PrimaryKeyConstraint("job", "key"),
    Index("job_labels_by_value", "key", "value", "job"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("uid", Text, primary_key=True),
    *(_text(name) for name in ("job", "tenant", "cluster", "pool", "region", "accelerator")),
    *(_text(name) for name in ("tasks", "outcome", "text")),
    *(_big(name) for name in ("placed_ms", "ended_ms", "width", "accelerators")),
    *(_big(name) for name in ("cpus_milli", "memory_bytes", "cost_micro_usd")),
    _big("price_micro_usd_per_accelerator_hour"),
    *(_maybe_big(name) for name in ("reserved_ms", "prepared_ms", "started_ms")),
    *(_maybe_big(name) for name in ("exit_code", "signal")),
    *(_maybe_big(name) for name in ("cpu_time_ms", "memory_peak_bytes", "accelerator_busy_ms")),
    *(_maybe_big(name) for name in ("handshake_ms", "prepare_ms", "launch_ms")),
    *(_maybe_big(name) for name in ("fetched_bytes", "cached_bytes", "queued")),
    Index("attempts_by_job", "job"),
    Index("attempts_by_cluster", "cluster", "ended_ms"),
)

receipts = Table(
    "receipts",
    metadata,
    *(_text(name) for name in ("job", "attempt", "cycle")),
    _big("created_ms"),
    Column("body_json", LargeBinary, nullable=False),
    PrimaryKeyConstraint("job", "attempt", "cycle"),
)

usage = Table(
    "usage",
    metadata,
    _text("attempt"),
    Column("seq", BigInteger, nullable=False, autoincrement=False),
    *(_text(name) for name in ("job", "tenant", "cluster", "pool", "accelerator")),
    *(_big(name) for name in ("from_ms", "to_ms", "accelerator_ms", "cpu_ms")),
    *(_big(name) for name in ("memory_mib_s", "cost_micro_usd")),
    PrimaryKeyConstraint("attempt", "seq"),
    Index("usage_by_tenant", "tenant", "to_ms"),
    Index("usage_by_time", "to_ms"),
)

cycles = Table(
    "cycles",
    metadata,
    Column("position", _Position, primary_key=True, autoincrement=True),
    *(_text(name) for name in ("cycle", "status")),
    *(_big(name) for name in ("revision", "at_ms", "classes", "considered", "placed")),
    *(_big(name) for name in ("unplaced", "refused_by_applier")),
    *(Column(name, Double, nullable=False) for name in ("wall_s", "cpu_s")),
    *(_maybe_big(name) for name in ("objective_micro_usd", "bound_micro_usd")),
    Column("gap", Double, nullable=True),
    UniqueConstraint("cycle"),
    Index("cycles_by_time", "at_ms"),
)

audit = Table(
    "audit",
    metadata,
    Column("position", _Position, primary_key=True, autoincrement=True),
    *(_text(name) for name in ("subject", "key", "who", "what", "why", "tenant", "attempt")),
    _big("at_ms"),
    UniqueConstraint("subject", "key"),
)

gains = Table(
    "gains",
    metadata,
    Column("cycle", Text, primary_key=True),
    *(_big(name) for name in ("at_ms", "copies", "floor_copies", "accelerators")),
    *(_big(name) for name in ("floor_accelerators", "more_copies", "fewer_copies")),
    *(_big(name) for name in ("cost_micro_usd", "floor_cost_micro_usd", "saved_micro_usd")),
    *(_big(name) for name in ("sooner_ms", "wait_saved_ms")),
    Index("gains_by_time", "at_ms"),
)

predictions = Table(
    "predictions",
    metadata,
    *(_text(name) for name in ("subject", "kind")),
    *(_big(name) for name in ("at_ms", "p50_ms", "p90_ms", "actual_ms")),
    PrimaryKeyConstraint("subject", "kind"),
    Index("predictions_by_time", "at_ms"),
)


@dataclass(frozen=True, slots=True)
class Migration:
    """Statements that bring a database of version `version - 1` to `version`."""

    version: int
    statements: tuple[str, ...]


MIGRATIONS: Final[tuple[Migration, ...]] = (
    Migration(2, ("CREATE INDEX IF NOT EXISTS jobs_by_end ON jobs (ended_ms)",)),
    Migration(
        3,
        (
            "ALTER TABLE attempts ADD COLUMN fetched_bytes BIGINT",
            "ALTER TABLE attempts ADD COLUMN cached_bytes BIGINT",
            "CREATE INDEX IF NOT EXISTS attempts_by_cluster ON attempts (cluster, ended_ms)",
        ),
    ),
    Migration(
        4,
        (
            "CREATE TABLE IF NOT EXISTS gains (cycle TEXT NOT NULL PRIMARY KEY, "
            + ", ".join(
                f"{name} BIGINT NOT NULL"
                for name in (
                    "at_ms", "copies", "floor_copies", "accelerators", "floor_accelerators",
                    "more_copies", "fewer_copies", "cost_micro_usd", "floor_cost_micro_usd",
                    "saved_micro_usd", "sooner_ms", "wait_saved_ms",
                )
            )
            + ")",
            "CREATE INDEX IF NOT EXISTS gains_by_time ON gains (at_ms)",
            "CREATE TABLE IF NOT EXISTS predictions (subject TEXT NOT NULL, kind TEXT NOT NULL, "
            "at_ms BIGINT NOT NULL, p50_ms BIGINT NOT NULL, p90_ms BIGINT NOT NULL, "
            "actual_ms BIGINT NOT NULL, PRIMARY KEY (subject, kind))",
            "CREATE INDEX IF NOT EXISTS predictions_by_time ON predictions (at_ms)",
        ),
    ),
    Migration(5, ("ALTER TABLE attempts ADD COLUMN queued BIGINT",)),
)  # fmt: skip


def insert_new(table: Table, dialect: str) -> Insert:
    """An insert that leaves a row with the same key alone, in the words of the dialect.

    Raises ValueError for a database that has no such insert.
    """
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql  # a tenth of a second that few need

        return postgresql.insert(table).on_conflict_do_nothing()
    raise ValueError(f"the ledger runs on sqlite or postgresql, not {dialect}")


def migrate(
    connection: Connection, *, now_ms: int, migrations: Sequence[Migration] = MIGRATIONS
) -> int:
    """Create the tables or bring them up to date, in the caller's transaction.

    `migrations` are consecutive from version 2. Returns the version reached; raises
    `SchemaTooNew`. Replicas that start at once do this one after the other.
    """
    newest = migrations[-1].version if migrations else BASE_VERSION
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    found = _version(connection)
    if found > newest:
        raise SchemaTooNew(found, newest)
    if found == 0:
        metadata.create_all(connection)
        connection.execute(insert(versions).values(version=newest, applied_ms=now_ms))
    for migration in migrations:
        if 0 < found < migration.version:
            for statement in migration.statements:
                connection.execute(text(statement))
            connection.execute(
                insert(versions).values(version=migration.version, applied_ms=now_ms)
            )
    return newest


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(versions.name):
        return 0
    return connection.execute(select(func.max(versions.c.version))).scalar() or 0
