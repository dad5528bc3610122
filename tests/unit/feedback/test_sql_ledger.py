from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.dialects import postgresql

from broker.feedback.backends import ledger_queries, sql_ledger
from broker.feedback.backends.sql_ledger import SqlLedger
from broker.feedback.ports import (
    FeedbackUnavailable,
    JobCursor,
    JobFilter,
    LedgerBatch,
    SchemaTooNew,
)
from tests.unit.feedback.builders import JOB, NOW_MS, a_job, a_usage, an_attempt

ROOT = Path(__file__).resolve().parents[3]

# Says each job id once its write is confirmed, until it is killed.
WRITER = """
import asyncio, sys
from broker.feedback.backends.sql_ledger import SqlLedger
from broker.feedback.ports import LedgerBatch
from tests.unit.feedback.builders import a_job, an_attempt

async def write() -> None:
    ledger = await SqlLedger.open(sys.argv[1], now_ms=1)
    number = 0
    while True:
        jobs = [f"j{number + i}" for i in range(20)]
        number += 20
        await asyncio.gather(*(
            ledger.record(LedgerBatch(jobs=(a_job(j),), attempts=(an_attempt(f"{j}-1"),)))
            for j in jobs
        ))
        print(*jobs, flush=True)

asyncio.run(write())
"""


def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state/ledger.db"


async def test_entries_outlive_the_process(tmp_path: Path) -> None:
    ledger = await SqlLedger.open(url(tmp_path), now_ms=NOW_MS)
    await ledger.record_job(a_job())
    await ledger.close()
    ledger = await SqlLedger.open(url(tmp_path), now_ms=NOW_MS + 1)
    assert await ledger.job(JOB) == a_job()
    await ledger.close()
    for path in ((tmp_path / "state"), *(tmp_path / "state").iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path


async def test_what_was_confirmed_survives_kill_9_whole(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, url(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert process.stdout is not None
    confirmed = [job for _ in range(5) for job in process.stdout.readline().split()]
    os.kill(process.pid, signal.SIGKILL)
    confirmed += process.stdout.read().split()
    process.wait()
    process.stdout.close()
    ledger = await SqlLedger.open(url(tmp_path), now_ms=NOW_MS)
    page = await ledger.jobs(JobFilter(limit=1000))
    stored = {entry.job for entry in page.jobs}
    assert len(confirmed) >= 100 and set(confirmed) <= stored or len(stored) == 1000
    for job in stored:  # a batch is there whole, also one that was never confirmed
        assert len(await ledger.attempts(job)) == 1
    await ledger.close()


async def test_two_brokers_may_write_one_file(tmp_path: Path) -> None:
    first, second, *others = await asyncio.gather(
        *(SqlLedger.open(url(tmp_path), now_ms=number) for number in range(6))
    )
    jobs = [a_job(f"j{number}") for number in range(50)]
    await asyncio.gather(*(ledger.record_job(job) for job in jobs for ledger in (first, second)))
    assert len((await second.jobs(JobFilter())).jobs) == 50
    for ledger in (first, second, *others):
        await ledger.close()


async def test_a_commit_is_synced_and_readers_do_not_wait(tmp_path: Path) -> None:
    ledger = await SqlLedger.open(url(tmp_path), now_ms=1)
    await ledger.record_job(a_job())
    writer = sqlite3.connect(tmp_path / "state" / "ledger.db", isolation_level=None)
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with ledger._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
    writer.execute("BEGIN IMMEDIATE")
    assert await asyncio.wait_for(ledger.job(JOB), 2) == a_job()
    pending = asyncio.create_task(ledger.record_job(a_job("jother")))
    await asyncio.sleep(0.05)
    assert not pending.done()
    writer.execute("COMMIT")
    await asyncio.wait_for(pending, 5)
    writer.close()
    await ledger.close()


async def test_a_newer_ledger_is_refused_at_the_door(tmp_path: Path) -> None:
    ledger = await SqlLedger.open(url(tmp_path), now_ms=1)
    await ledger.close()
    with sqlite3.connect(tmp_path / "state" / "ledger.db") as connection:
        connection.execute("INSERT INTO ledger_versions VALUES (99, 1)")
    connection.close()
    with pytest.raises(SchemaTooNew, match="99"):
        await SqlLedger.open(url(tmp_path), now_ms=2)


@pytest.mark.parametrize("address", ["sqlite://", "sqlite:///:memory:", "mysql://h/db"])
async def test_databases_that_cannot_serve_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="ledger"):
        await SqlLedger.open(address, now_ms=1)


async def test_a_file_that_is_no_database_is_said_to_be_unavailable(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "ledger.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(FeedbackUnavailable, match="not a database"):
        await SqlLedger.open(url(tmp_path), now_ms=1)


async def test_a_broken_database_answers_unavailable_and_recovers(tmp_path: Path) -> None:
    ledger = await SqlLedger.open(url(tmp_path), now_ms=1)
    with sqlite3.connect(tmp_path / "state" / "ledger.db") as connection:
        connection.execute("ALTER TABLE attempts RENAME TO hidden")
    with pytest.raises(FeedbackUnavailable):
        await ledger.record(LedgerBatch(jobs=(a_job(),), attempts=(an_attempt(),)))
    assert await ledger.job(JOB) is None  # not half of it
    connection.execute("ALTER TABLE hidden RENAME TO attempts")
    connection.commit()
    connection.close()
    await ledger.record(LedgerBatch(jobs=(a_job(),), attempts=(an_attempt(),)))
    assert len(await ledger.attempts(JOB)) == 1
    await ledger.close()


async def test_a_bad_write_does_not_take_its_neighbours_along(tmp_path: Path) -> None:
    ledger = await SqlLedger.open(url(tmp_path), now_ms=1)
    # None where a value must be: a bug of the caller that only the database notices.
    broken = replace(a_job("jbad"), tenant=None)  # type: ignore[arg-type]
    outcomes = await asyncio.gather(
        *(ledger.record_job(a_job(f"j{number}")) for number in range(20)),
        ledger.record_job(broken),
        return_exceptions=True,
    )
    assert outcomes[:-1] == [None] * 20
    assert isinstance(outcomes[-1], ValueError)
    await ledger.close()


async def test_many_small_writes_share_commits(tmp_path: Path) -> None:
    ledger = await SqlLedger.open(url(tmp_path), now_ms=1)
    await asyncio.gather(*(ledger.record_job(a_job(f"j{number}")) for number in range(300)))
    await ledger.record_usage([a_usage(seq=seq) for seq in range(5_000)])
    page = await ledger.jobs(JobFilter(limit=1000))
    assert len(page.jobs) == 300
    await ledger.close()


def test_every_question_can_be_put_to_postgresql() -> None:
    everything = JobFilter(
        tenant="acme",
        outcomes=frozenset({"failed"}),
        name_prefix="train",
        labels=(("team", "vision"),),
        created_from_ms=1,
        created_to_ms=2,
        after=JobCursor(1, JOB),
    )
    for query in (
        sql_ledger._jobs_query(everything),
        ledger_queries.usage_query("acme", 0, 1),
        ledger_queries.outcomes_query("acme", 0, 1),
        ledger_queries.gains_query(0, 1),
        ledger_queries.calibration_query(0, 1),
        ledger_queries.cycles_query(0, 1),
    ):
        assert "SELECT" in str(query.compile(dialect=postgresql.dialect()))


async def test_lists_use_their_indexes(tmp_path: Path) -> None:
    ledger = await SqlLedger.open(url(tmp_path), now_ms=1)
    await ledger.record_job(a_job())
    for query, index in (
        (JobFilter(tenant="acme", after=JobCursor(NOW_MS, JOB)), "jobs_by_tenant"),
        (JobFilter(after=JobCursor(NOW_MS, JOB)), "jobs_by_age"),
    ):
        compiled = sql_ledger._jobs_query(query).compile(
            ledger._engine, compile_kwargs={"literal_binds": True}
        )
        with ledger._engine.connect() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}").all()
        described = " ".join(str(row[3]) for row in plan)
        assert index in described and "TEMP B-TREE" not in described
    await ledger.close()
