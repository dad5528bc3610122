from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from broker.feedback import ledger_schema as schema
from broker.feedback.decision_entries import GainEntry, PredictionEntry
from broker.feedback.entries import (
    AttemptEntry,
    AuditEntry,
    CycleEntry,
    JobEntry,
    ReceiptEntry,
    UsageEntry,
)
from broker.feedback.ports import SchemaTooNew

NEXT = schema.Migration(2, ("ALTER TABLE jobs ADD COLUMN note TEXT",))
AFTER = schema.Migration(3, ("ALTER TABLE jobs ADD COLUMN more TEXT", "DELETE FROM cycles"))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/ledger.db")
    yield engine
    engine.dispose()


def columns(connection: Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(text(f"PRAGMA table_info({table})"))}


def applied(connection: Connection) -> list[tuple[int, int]]:
    rows = connection.execute(text("SELECT version, applied_ms FROM ledger_versions ORDER BY 1"))
    return [(row[0], row[1]) for row in rows]


def test_a_fresh_database_is_made_at_the_newest_version(engine: Engine) -> None:
    with engine.begin() as connection:
        newest = schema.BASE_VERSION + len(schema.MIGRATIONS)
        assert schema.migrate(connection, now_ms=7) == newest
        assert schema.migrate(connection, now_ms=8) == newest
        assert applied(connection) == [(newest, 7)]


def test_a_ledger_of_the_first_version_learns_what_later_ones_know(engine: Engine) -> None:
    later, fresh = {"fetched_bytes", "cached_bytes", "queued"}, dict[str, set[str]]()
    with engine.begin() as connection:
        schema.migrate(connection, now_ms=1, migrations=())
        connection.execute(text("DROP INDEX jobs_by_end"))
        connection.execute(text("DROP INDEX attempts_by_cluster"))
        for name in ("gains", "predictions"):
            fresh[name] = columns(connection, name)
            connection.execute(text(f"DROP TABLE {name}"))
        for name in later:
            connection.execute(text(f"ALTER TABLE attempts DROP COLUMN {name}"))
        schema.migrate(connection, now_ms=2)
        indexes = {
            row[1]
            for table in ("jobs", "attempts")
            for row in connection.execute(text(f"PRAGMA index_list({table})"))
        }
        assert {"jobs_by_end", "attempts_by_cluster"} <= indexes
        assert later <= columns(connection, "attempts")
        assert {name: columns(connection, name) for name in fresh} == fresh


def test_an_older_database_takes_every_step_it_lacks_once(engine: Engine) -> None:
    with engine.begin() as connection:
        schema.migrate(connection, now_ms=1, migrations=())
        assert schema.migrate(connection, now_ms=2, migrations=(NEXT,)) == 2
        assert "note" in columns(connection, "jobs")
        assert schema.migrate(connection, now_ms=3, migrations=(NEXT, AFTER)) == 3
        assert schema.migrate(connection, now_ms=4, migrations=(NEXT, AFTER)) == 3
        assert {"note", "more"} <= columns(connection, "jobs")
        assert applied(connection) == [(1, 1), (2, 2), (3, 3)]


def test_a_newer_database_is_left_alone_and_named(engine: Engine) -> None:
    with engine.begin() as connection:
        schema.migrate(connection, now_ms=1, migrations=())
        schema.migrate(connection, now_ms=1, migrations=(NEXT,))
    with (
        pytest.raises(SchemaTooNew, match="version 2, this build knows up to 1") as error,
        engine.begin() as connection,
    ):
        schema.migrate(connection, now_ms=2, migrations=())
    assert (error.value.found, error.value.known) == (2, 1)


def test_the_migrations_are_consecutive_from_two() -> None:
    versions = [migration.version for migration in schema.MIGRATIONS]
    assert versions == list(range(2, 2 + len(versions)))


@pytest.mark.parametrize(
    ("table", "entry"),
    [
        (schema.jobs, JobEntry),
        (schema.attempts, AttemptEntry),
        (schema.receipts, ReceiptEntry),
        (schema.usage, UsageEntry),
        (schema.cycles, CycleEntry),
        (schema.audit, AuditEntry),
        (schema.gains, GainEntry),
        (schema.predictions, PredictionEntry),
    ],
)
def test_every_field_has_its_column_and_every_column_its_field(
    table: schema.Table, entry: type
) -> None:
    names = {field.name for field in dataclasses.fields(entry)}
    stored = {column.name for column in table.columns} - {"position"}
    assert {"labels_json" if name == "labels" else name for name in names} == stored
    optional = {
        field.name for field in dataclasses.fields(entry) if str(field.type).endswith("| None")
    }
    assert optional == {column.name for column in table.columns if column.nullable}


def test_every_table_can_be_made_in_postgresql() -> None:
    for table in schema.metadata.sorted_tables:
        made = str(CreateTable(table).compile(dialect=postgresql.dialect()))
        assert "BIGINT" in made or table is schema.job_labels
        for index in table.indexes:
            CreateIndex(index).compile(dialect=postgresql.dialect())
        insert = schema.insert_new(table, "postgresql").compile(dialect=postgresql.dialect())
        assert str(insert).endswith("ON CONFLICT DO NOTHING")


def test_another_database_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="not mysql"):
        schema.insert_new(schema.jobs, "mysql")
