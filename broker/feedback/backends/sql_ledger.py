"""The ledger in SQL: SQLite for one broker, PostgreSQL for several, through SQLAlchemy Core.

All writes go through one thread, several batches to a commit; reads have threads of their own,
and in WAL mode neither waits for the other. SQLite runs with `synchronous=FULL`: live state is
deleted once the ledger has an ended job, so a commit must survive a power cut.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    Table,
    create_engine,
    delete,
    event,
    func,
    literal,
    select,
    tuple_,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError, SQLAlchemyError

from broker.feedback import ledger_schema as schema
from broker.feedback.backends.durable_files import locked, make_directory
from broker.feedback.backends.ledger_queries import (
    calibration_query,
    cycles_query,
    gains_query,
    numbers,
    outcomes_query,
    usage_query,
)
from broker.feedback.decision_entries import CalibrationTotal, CycleTotal, DecisionDays, GainTotal
from broker.feedback.entries import as_row, clean_text, cleaned_batch, cleaned_filter, merged
from broker.feedback.grouping import GroupWriter
from broker.feedback.ports import (
    AttemptEntry,
    AuditEntry,
    CycleEntry,
    FeedbackUnavailable,
    JobCursor,
    JobEntry,
    JobFilter,
    JobPage,
    Ledger,
    LedgerBatch,
    OutcomeTotal,
    ReceiptEntry,
    SchemaTooNew,
    UsageTotal,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Answer = TypeVar("Answer")

BUSY_TIMEOUT_MS: Final = 10_000
_READERS: Final = 2
_KEYS_A_QUERY: Final = 500


class SqlLedger(Ledger):
    """`Ledger` over an SQLAlchemy engine. Make one with `open`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="ledger-read")
        self._writer: GroupWriter[LedgerBatch, None] = GroupWriter(
            self._write_group, thread="ledger-write"
        )

    @classmethod
    async def open(cls, url: str, *, now_ms: int) -> SqlLedger:
        """Connect to `sqlite:////abs/path/ledger.db` or `postgresql+<driver>://...`, creating
        or migrating the tables. Raises `SchemaTooNew`, `FeedbackUnavailable`, ValueError for
        another kind of database."""
        return cls(await asyncio.to_thread(_open, url, now_ms))

    async def record(self, batch: LedgerBatch) -> None:
        """See `Ledger`. Batches of concurrent callers share a commit."""
        await self._writer.submit(cleaned_batch(batch))

    async def job(self, job: str) -> JobEntry | None:
        """See `Ledger`."""
        query = _select_jobs(with_spec=True).where(schema.jobs.c.job == clean_text(job))
        rows = await self._read(query)
        return _job_entry(rows[0]) if rows else None

    async def jobs(self, query: JobFilter) -> JobPage:
        """See `Ledger`."""
        query = cleaned_filter(query)
        rows = await self._read(_jobs_query(query))
        entries = tuple(_job_entry(row) for row in rows[: query.limit])
        more = len(rows) > query.limit
        last = JobCursor(entries[-1].created_ms, entries[-1].job) if more else None
        return JobPage(entries, last)

    async def attempts(self, job: str) -> tuple[AttemptEntry, ...]:
        """See `Ledger`."""
        table = schema.attempts
        query = _select(table, AttemptEntry).where(table.c.job == clean_text(job))
        order = (table.c.placed_ms, func.length(table.c.uid), table.c.uid)
        rows = await self._read(query.order_by(*order))
        return tuple(AttemptEntry(**row._mapping) for row in rows)

    async def starts(self, cluster: str, limit: int) -> tuple[AttemptEntry, ...]:
        """See `Ledger`."""
        table = schema.attempts
        query = _select(table, AttemptEntry).where(table.c.cluster == clean_text(cluster))
        order = (table.c.ended_ms.desc(), table.c.uid)
        rows = await self._read(query.where(table.c.started_ms > 0).order_by(*order).limit(limit))
        return tuple(AttemptEntry(**row._mapping) for row in rows)

    async def receipts(self, job: str) -> tuple[ReceiptEntry, ...]:
        """See `Ledger`."""
        table = schema.receipts
        query = _select(table, ReceiptEntry).where(table.c.job == clean_text(job))
        order = (table.c.created_ms, table.c.attempt, table.c.cycle)
        rows = await self._read(query.order_by(*order))
        return tuple(ReceiptEntry(**row._mapping) for row in rows)

    async def audit(self, subject: str) -> tuple[AuditEntry, ...]:
        """See `Ledger`."""
        table = schema.audit
        query = _select(table, AuditEntry).where(table.c.subject == clean_text(subject))
        rows = await self._read(query.order_by(table.c.position))
        return tuple(AuditEntry(**row._mapping) for row in rows)

    async def usage(self, tenant: str | None, from_ms: int, to_ms: int) -> tuple[UsageTotal, ...]:
        """See `Ledger`."""
        rows = await self._read(usage_query(tenant, from_ms, to_ms))
        return tuple(UsageTotal(**numbers(row)) for row in rows)

    async def outcomes(
        self, tenant: str | None, from_ms: int, to_ms: int
    ) -> tuple[OutcomeTotal, ...]:
        """See `Ledger`."""
        rows = await self._read(outcomes_query(tenant, from_ms, to_ms))
        return tuple(OutcomeTotal(**numbers(row)) for row in rows)

    async def cycles(self, limit: int) -> tuple[CycleEntry, ...]:
        """See `Ledger`."""
        table = schema.cycles
        query = _select(table, CycleEntry).order_by(table.c.position.desc()).limit(limit)
        return tuple(CycleEntry(**row._mapping) for row in await self._read(query))

    async def decision_days(self, from_ms: int, to_ms: int) -> DecisionDays:
        """See `Ledger`."""
        cycles = await self._read(cycles_query(from_ms, to_ms))
        gains = await self._read(gains_query(from_ms, to_ms))
        calibration = await self._read(calibration_query(from_ms, to_ms))
        return DecisionDays(
            cycles=tuple(CycleTotal(**numbers(row)) for row in cycles),
            gains=tuple(GainTotal(**numbers(row)) for row in gains),
            calibration=tuple(CalibrationTotal(**numbers(row)) for row in calibration),
        )

    async def forget_cycles(self, before_ms: int) -> int:
        """See `Ledger`."""

        def forget() -> int:
            with _writing(self._engine) as connection:
                for table in (schema.gains, schema.predictions):
                    connection.execute(delete(table).where(table.c.at_ms < before_ms))
                old = delete(schema.cycles).where(schema.cycles.c.at_ms < before_ms)
                return connection.execute(old).rowcount

        return await self._in_thread(forget)

    async def close(self) -> None:
        """See `Ledger`."""
        await self._writer.close()
        self._readers.shutdown(wait=False)
        await asyncio.to_thread(self._engine.dispose)

    async def _read(self, query: Select[Any]) -> Sequence[Row[Any]]:
        def fetch() -> Sequence[Row[Any]]:
            with self._engine.connect() as connection:
                return connection.execute(query).all()

        return await self._in_thread(fetch)

    async def _in_thread(self, call: Callable[[], Answer]) -> Answer:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, call)
        except SQLAlchemyError as error:
            raise FeedbackUnavailable(f"ledger: {error}") from error

    def _write_group(self, batches: Sequence[LedgerBatch]) -> Sequence[Exception | None]:
        """All batches in one transaction; if that fails, each in its own, so that only the
        offending one is refused."""
        try:
            with _writing(self._engine) as connection:
                _write(connection, merged(batches))
        except (DataError, IntegrityError, ProgrammingError) as error:
            if len(batches) == 1:
                return [ValueError(f"the ledger cannot hold this: {error}")]
            return [outcome for batch in batches for outcome in self._write_group([batch])]
        except SQLAlchemyError as error:
            return [FeedbackUnavailable(f"ledger: {error}")] * len(batches)
        return [None] * len(batches)


def _open(url: str, now_ms: int) -> Engine:
    engine = _engine(url)
    try:
        if engine.dialect.name == "sqlite":
            _prepare_file(Path(engine.url.database or ""))
        with _writing(engine) as connection:
            schema.migrate(connection, now_ms=now_ms)
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        engine.dispose()
        raise FeedbackUnavailable(f"ledger: {error}") from error
    except SchemaTooNew:
        engine.dispose()
        raise
    return engine


def _engine(url: str) -> Engine:
    parsed = make_url(url)
    backend = parsed.get_backend_name()
    # Refuses other databases here, not at the first job.
    schema.insert_new(schema.jobs, backend)
    if backend != "sqlite":
        return create_engine(parsed, pool_size=_READERS + 1, pool_pre_ping=True)
    if not parsed.database or parsed.database == ":memory:":
        raise ValueError("the SQL ledger needs a file; the memory ledger is another backend")
    engine = create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})
    event.listen(engine, "connect", _on_sqlite_connect)
    event.listen(engine, "begin", _on_sqlite_begin)
    return engine


def _prepare_file(path: Path) -> None:
    """Create the database for this user alone (it holds the specs of all tenants) in WAL mode.

    SQLite does not wait for a lock when it switches to WAL, so brokers that start at once take
    turns; the mode stays with the file.
    """
    make_directory(path.parent)
    with locked(path.with_name(f"{path.name}.lock")):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1000)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        finally:
            connection.close()


def _on_sqlite_connect(connection: Any, _record: Any) -> None:
    # The timeout is set by `connect`. The driver must not begin transactions by itself: it
    # would not begin one before DDL.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _on_sqlite_begin(connection: Connection) -> None:
    # A reader that turns writer may be refused at once instead of waiting: say so from the
    # start.
    writes = connection.get_execution_options().get("ledger_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _writing(engine: Engine) -> Iterator[Connection]:
    """One transaction that writes; committed unless the block raises."""
    opened = engine.connect().execution_options(ledger_write=True)
    with opened as connection, connection.begin():
        yield connection


def _write(connection: Connection, batch: LedgerBatch) -> None:
    _write_jobs(connection, batch.jobs)
    kinds: tuple[tuple[Table, Sequence[DataclassInstance]], ...] = (
        (schema.attempts, batch.attempts),
        (schema.receipts, batch.receipts),
        (schema.usage, batch.usage),
        (schema.cycles, batch.cycles),
        (schema.audit, batch.audit),
        (schema.gains, batch.gains),
        (schema.predictions, batch.predictions),
    )
    for table, entries in kinds:
        _insert_new(connection, table, [as_row(entry) for entry in entries])


def _write_jobs(connection: Connection, entries: Iterable[JobEntry]) -> None:
    """Jobs not yet there, with their labels; labels of a repeat must not join the first's."""
    by_id: dict[str, JobEntry] = {}
    for entry in entries:
        by_id.setdefault(entry.job, entry)
    ids = list(by_id)
    for start in range(0, len(ids), _KEYS_A_QUERY):
        known = schema.jobs.c.job.in_(ids[start : start + _KEYS_A_QUERY])
        for job in connection.execute(select(schema.jobs.c.job).where(known)).scalars():
            del by_id[job]
    rows, labels = [], []
    for entry in by_id.values():
        row = as_row(entry)
        row["labels_json"] = json.dumps(dict(row.pop("labels")))
        rows.append(row)
        labels += [{"job": entry.job, "key": k, "value": v} for k, v in entry.labels]
    _insert_new(connection, schema.jobs, rows)
    _insert_new(connection, schema.job_labels, labels)


def _insert_new(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(schema.insert_new(table, connection.dialect.name), rows)


def _select(table: Table, entry: type[Any]) -> Select[Any]:
    return select(*(table.c[field.name] for field in fields(entry)))


def _select_jobs(*, with_spec: bool) -> Select[Any]:
    left_out = {"labels"} if with_spec else {"labels", "spec_json"}
    names = [field.name for field in fields(JobEntry) if field.name not in left_out]
    return select(*(schema.jobs.c[name] for name in names), schema.jobs.c.labels_json)


def _job_entry(row: Row[Any]) -> JobEntry:
    values = dict(row._mapping)
    labels = json.loads(values.pop("labels_json"))
    return JobEntry(labels=tuple(sorted(labels.items())), **values)


def _jobs_query(query: JobFilter) -> Select[Any]:
    table, labels = schema.jobs, schema.job_labels
    conditions: list[ColumnElement[bool]] = []
    if query.tenant is not None:
        conditions.append(table.c.tenant == query.tenant)
    if query.outcomes:
        conditions.append(table.c.outcome.in_(sorted(query.outcomes)))
    if query.name_prefix:
        # LIKE ignores case in SQLite and not in PostgreSQL; this is the same in both.
        prefix = query.name_prefix
        conditions.append(func.substr(table.c.name, 1, len(prefix)) == prefix)
    for key, value in query.labels:
        match = (labels.c.key == key, labels.c.value == value, labels.c.job == table.c.job)
        conditions.append(select(labels.c.job).where(*match).exists())
    if query.created_from_ms is not None:
        conditions.append(table.c.created_ms >= query.created_from_ms)
    if query.created_to_ms is not None:
        conditions.append(table.c.created_ms < query.created_to_ms)
    if query.after is not None:
        place = tuple_(literal(query.after.created_ms), literal(query.after.job))
        conditions.append(tuple_(table.c.created_ms, table.c.job) < place)
    newest_first = (table.c.created_ms.desc(), table.c.job.desc())
    selected = _select_jobs(with_spec=False).where(*conditions)
    return selected.order_by(*newest_first).limit(query.limit + 1)
