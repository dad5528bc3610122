"""What every ledger does, whatever it is made of.

PostgreSQL takes part where TRADEWIND_TEST_POSTGRES holds an SQLAlchemy URL of an empty database.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from broker.feedback import ledger_schema
from broker.feedback.backends.memory import MemoryLedger
from broker.feedback.backends.sql_ledger import SqlLedger
from broker.feedback.ports import (
    JobCursor,
    JobEntry,
    JobFilter,
    Ledger,
    LedgerBatch,
    OutcomeTotal,
    UsageTotal,
)
from tests.unit.feedback.builders import (
    JOB,
    NOW_MS,
    a_cycle,
    a_gain,
    a_job,
    a_prediction,
    a_receipt,
    a_usage,
    an_attempt,
    an_audit,
)

POSTGRES_URL = os.environ.get("TRADEWIND_TEST_POSTGRES", "")
BACKENDS = ["memory", "sqlite", *(["postgresql"] if POSTGRES_URL else [])]


@pytest.fixture(params=BACKENDS)
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    made: Ledger
    if request.param == "memory":
        made = MemoryLedger()
    elif request.param == "sqlite":
        made = await SqlLedger.open(f"sqlite:///{tmp_path}/ledger.db", now_ms=NOW_MS)
    else:
        engine = create_engine(POSTGRES_URL)
        ledger_schema.metadata.drop_all(engine)
        engine.dispose()
        made = await SqlLedger.open(POSTGRES_URL, now_ms=NOW_MS)
    yield made
    await made.close()


def test_postgresql_takes_part() -> None:
    if not POSTGRES_URL:
        pytest.skip("no PostgreSQL: TRADEWIND_TEST_POSTGRES names no database")
    assert "postgresql" in BACKENDS


async def names(ledger: Ledger, **conditions: object) -> list[str]:
    page = await ledger.jobs(JobFilter(**conditions))  # type: ignore[arg-type]
    return [entry.job for entry in page.jobs]


async def test_everything_written_is_read_back_as_it_was(ledger: Ledger) -> None:
    full_attempt = an_attempt(
        tasks="0-99,120",
        width=10,
        reserved_ms=NOW_MS + 1,
        prepared_ms=NOW_MS + 2,
        signal=9,
        text="killed",
        cpus_milli=96_000,
        memory_bytes=2**41,
        cost_micro_usd=3_000,
        cpu_time_ms=5,
        memory_peak_bytes=2**40,
        accelerator_busy_ms=7,
        handshake_ms=1,
        prepare_ms=2,
        launch_ms=3,
    )
    batch = LedgerBatch(
        jobs=(a_job(),),
        attempts=(full_attempt,),
        receipts=(a_receipt(body_json=b"\x00\xff"),),
        usage=(a_usage(),),
        audit=(an_audit(),),
        cycles=(a_cycle(gap=None, bound_micro_usd=None),),
    )
    await ledger.record(batch)
    assert await ledger.job(JOB) == a_job()
    assert await ledger.attempts(JOB) == (full_attempt,)
    assert await ledger.receipts(JOB) == batch.receipts
    assert await ledger.audit(JOB) == batch.audit
    assert await ledger.cycles(10) == batch.cycles
    assert await ledger.usage("acme", NOW_MS, NOW_MS + 1_001) == (
        UsageTotal(
            tenant="acme",
            cluster="us-east-1",
            pool="h100",
            accelerator="H100",
            attempts=1,
            accelerator_ms=8_000,
            cpu_ms=500,
            memory_mib_s=64,
            cost_micro_usd=6_644,
        ),
    )


async def test_nothing_known_is_nothing_not_an_error(ledger: Ledger) -> None:
    await ledger.record(LedgerBatch())
    assert await ledger.job("junknown") is None
    assert (await ledger.jobs(JobFilter())).jobs == ()
    assert await ledger.attempts("junknown") == ()
    assert await ledger.usage(None, 0, 2**62) == ()


async def test_repeating_a_write_changes_nothing(ledger: Ledger) -> None:
    batch = LedgerBatch(
        jobs=(a_job(),),
        attempts=(an_attempt(),),
        receipts=(a_receipt(),),
        usage=(a_usage(),),
        audit=(an_audit(),),
        cycles=(a_cycle(),),
    )
    await ledger.record(batch)
    await ledger.record(batch)
    assert (await ledger.jobs(JobFilter())).jobs == (a_job(spec_json=b""),)
    assert await ledger.attempts(JOB) == batch.attempts
    assert await ledger.receipts(JOB) == batch.receipts
    assert await ledger.audit(JOB) == batch.audit
    assert await ledger.cycles(10) == batch.cycles
    totals = await ledger.usage("acme", 0, 2**62)
    assert [total.accelerator_ms for total in totals] == [8_000]


async def test_the_first_write_of_a_key_wins_with_its_labels(ledger: Ledger) -> None:
    await ledger.record_job(a_job())
    await ledger.record_job(a_job(outcome="failed", labels=(("team", "audio"),)))
    found = await ledger.job(JOB)
    assert found is not None
    assert (found.outcome, found.labels) == ("succeeded", (("team", "vision"),))
    assert await names(ledger, labels=(("team", "audio"),)) == []


async def test_a_key_twice_in_one_batch_is_one_entry(ledger: Ledger) -> None:
    await ledger.record(LedgerBatch(jobs=(a_job(), a_job(outcome="failed"))))
    found = await ledger.job(JOB)
    assert found is not None and found.outcome == "succeeded"


async def test_a_batch_is_all_or_nothing(ledger: Ledger) -> None:
    bad = LedgerBatch(jobs=(a_job(),), attempts=(an_attempt(cost_micro_usd=2**63),))
    with pytest.raises(ValueError, match="cost_micro_usd"):
        await ledger.record(bad)
    assert await ledger.job(JOB) is None


async def test_numbers_no_database_keeps_are_refused(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="gap is not finite"):
        await ledger.record_cycle(a_cycle(gap=float("nan")))
    with pytest.raises(ValueError, match="created_ms"):
        await ledger.jobs(JobFilter(after=JobCursor(2**70, JOB)))
    with pytest.raises(ValueError, match="limit"):
        await ledger.jobs(JobFilter(limit=0))


async def test_a_job_with_unstorable_text_still_ends(ledger: Ledger) -> None:
    await ledger.record_job(a_job(reason="a\x00b\ud800c", labels=(("k", "v\x00"),)))
    found = await ledger.job(JOB)
    assert found is not None
    assert (found.reason, found.labels) == ("a\ufffdb\ufffdc", (("k", "v\ufffd"),))
    assert await ledger.job("j\x00\ud800") is None
    assert await names(ledger, name_prefix="\x00") == []


async def test_a_megabyte_of_reason_is_cut(ledger: Ledger) -> None:
    await ledger.record_attempts([an_attempt(text="x" * 1_000_000)])
    (found,) = await ledger.attempts(JOB)
    assert len(found.text) == 4096 and found.text.endswith("x…")


async def test_jobs_are_newest_first_and_without_spec(ledger: Ledger) -> None:
    for job, created_ms in (("ja", 5), ("jb", 7), ("jc", 7), ("jd", 6)):
        await ledger.record_job(a_job(job, created_ms=created_ms))
    page = await ledger.jobs(JobFilter())
    assert [entry.job for entry in page.jobs] == ["jc", "jb", "jd", "ja"]
    assert page.next is None
    assert page.jobs[0] == a_job("jc", created_ms=7, spec_json=b"")


async def test_pages_neither_repeat_nor_skip_while_jobs_keep_ending(ledger: Ledger) -> None:
    for number in range(10):
        await ledger.record_job(a_job(f"j{number}", created_ms=NOW_MS + number // 3))
    seen, after, newer = [], None, 0
    while True:
        page = await ledger.jobs(JobFilter(after=after, limit=3))
        seen += [entry.job for entry in page.jobs]
        newer += 1
        await ledger.record_job(a_job(f"jnew{newer}", created_ms=NOW_MS + 100 + newer))
        if page.next is None:
            break
        after = page.next
    assert seen == [f"j{number}" for number in reversed(range(10))]


async def test_a_full_last_page_says_it_is_the_last(ledger: Ledger) -> None:
    for job in ("ja", "jb"):
        await ledger.record_job(a_job(job))
    assert (await ledger.jobs(JobFilter(limit=2))).next is None
    assert (await ledger.jobs(JobFilter(limit=1))).next == JobCursor(NOW_MS, "jb")


async def test_filters_hold_together(ledger: Ledger) -> None:
    await ledger.record(
        LedgerBatch(
            jobs=(
                a_job("ja", name="Train-1", labels=(("team", "vision"), ("run", "7"))),
                a_job("jb", name="train-2", outcome="failed"),
                a_job("jc", name="train_3", tenant="other", created_ms=NOW_MS + 1),
                a_job("jd", name="eval%", labels=()),
            )
        )
    )
    assert await names(ledger, tenant="acme") == ["jd", "jb", "ja"]
    assert await names(ledger, tenant="nobody") == []
    assert await names(ledger, outcomes=frozenset({"failed", "lost"})) == ["jb"]
    assert await names(ledger, name_prefix="train") == ["jc", "jb"]
    assert await names(ledger, name_prefix="train_") == ["jc"]
    assert await names(ledger, name_prefix="eval%") == ["jd"]
    assert await names(ledger, labels=(("team", "vision"),)) == ["jc", "jb", "ja"]
    assert await names(ledger, labels=(("team", "vision"), ("run", "7"))) == ["ja"]
    assert await names(ledger, labels=(("team", "vision"),), tenant="acme", limit=1) == ["jb"]
    assert await names(ledger, created_from_ms=NOW_MS + 1) == ["jc"]
    assert await names(ledger, created_to_ms=NOW_MS + 1) == ["jd", "jb", "ja"]


async def test_attempts_come_in_the_order_they_were_placed(ledger: Ledger) -> None:
    uids = [f"{JOB}-{number}" for number in (10, 2, 1)]
    await ledger.record_attempts([an_attempt(uid) for uid in uids])
    await ledger.record_attempts([an_attempt(f"{JOB}-3", placed_ms=NOW_MS - 1)])
    found = [entry.uid for entry in await ledger.attempts(JOB)]
    assert found == [f"{JOB}-{number}" for number in (3, 1, 2, 10)]


async def test_starts_of_a_cluster_are_the_last_that_ended_there(ledger: Ledger) -> None:
    rows = [
        an_attempt(f"{JOB}-{n}", ended_ms=NOW_MS + 1_000 + n, fetched_bytes=n, cached_bytes=2)
        for n in range(1, 6)
    ]
    never = an_attempt(f"{JOB}-6", started_ms=None, ended_ms=NOW_MS + 9_000)
    elsewhere = an_attempt(f"{JOB}-7", cluster="eu", ended_ms=NOW_MS + 9_000)
    await ledger.record_attempts([*rows, never, elsewhere])
    assert await ledger.starts("us-east-1", 3) == tuple(reversed(rows[2:]))
    assert await ledger.starts("mars", 3) == ()


async def test_audit_keeps_the_order_of_appending_whatever_the_clock_says(
    ledger: Ledger,
) -> None:
    await ledger.record_audit([an_audit("9.0"), an_audit("9.1", at_ms=NOW_MS - 60_000)])
    await ledger.record_audit([an_audit("10.0", at_ms=NOW_MS - 90_000), an_audit("9.0")])
    await ledger.record_audit([an_audit("9.0", subject="policies/gold")])
    assert [entry.key for entry in await ledger.audit(JOB)] == ["9.0", "9.1", "10.0"]
    assert len(await ledger.audit("policies/gold")) == 1


async def test_receipts_are_kept_per_cycle_and_attempt(ledger: Ledger) -> None:
    waiting = a_receipt(attempt="", cycle="1-1")
    placed = a_receipt(cycle="1-2", created_ms=NOW_MS + 1)
    await ledger.record_receipts([placed, waiting])
    assert await ledger.receipts(JOB) == (waiting, placed)


async def test_adjacent_usage_periods_add_up(ledger: Ledger) -> None:
    entries = [
        a_usage(seq=seq, from_ms=NOW_MS + seq * 1_000, to_ms=NOW_MS + (seq + 1) * 1_000)
        for seq in range(4)
    ]
    foreign = a_usage(attempt="jz-1", tenant="other", to_ms=NOW_MS + 1_500)
    await ledger.record_usage([*entries, foreign, a_usage(attempt="jy-1", pool="a100")])
    whole = await ledger.usage("acme", NOW_MS, NOW_MS + 4_001)
    first = await ledger.usage("acme", NOW_MS, NOW_MS + 2_000)
    second = await ledger.usage("acme", NOW_MS + 2_000, NOW_MS + 4_001)
    assert [(total.pool, total.cost_micro_usd) for total in whole] == [
        ("a100", 6_644),
        ("h100", 4 * 6_644),
    ]
    assert sum(total.cost_micro_usd for total in (*first, *second)) == 5 * 6_644
    assert whole[1].attempts == 1
    everyone = await ledger.usage(None, NOW_MS, NOW_MS + 4_001)
    assert {total.tenant for total in everyone} == {"acme", "other"}
    assert all(type(total.cost_micro_usd) is int for total in everyone)


async def test_sums_beyond_32_bits_stay_exact(ledger: Ledger) -> None:
    huge = 2**53 + 1
    await ledger.record_usage(
        [a_usage(accelerator_ms=huge), a_usage(seq=1, accelerator_ms=huge + 1)]
    )
    (total,) = await ledger.usage("acme", 0, 2**62)
    assert total.accelerator_ms == 2 * huge + 1


async def test_old_cycles_may_be_forgotten(ledger: Ledger) -> None:
    for number in range(4):
        await ledger.record_cycle(a_cycle(f"1-{number}", at_ms=NOW_MS + number))
    assert await ledger.forget_cycles(NOW_MS + 2) == 2
    assert [cycle.cycle for cycle in await ledger.cycles(10)] == ["1-3", "1-2"]
    assert [cycle.cycle for cycle in await ledger.cycles(1)] == ["1-3"]


async def test_concurrent_writers_all_land(ledger: Ledger) -> None:
    await asyncio.gather(*(ledger.record_job(a_job(f"j{number % 150}")) for number in range(200)))
    assert len(await names(ledger, limit=1000)) == 150


async def test_jobs_are_counted_by_how_they_ended(ledger: Ledger) -> None:
    def ended(job: str, at_ms: int, outcome: str, tenant: str = "acme") -> JobEntry:
        return a_job(
            job=job, tenant=tenant, ended_ms=at_ms, outcome=outcome, cost_micro_usd=2_000
        )

    day = (NOW_MS, NOW_MS + 10)
    rows = (
        ended("j1", NOW_MS, "succeeded"), ended("j2", NOW_MS + 9, "succeeded"),
        ended("j3", NOW_MS + 5, "failed"), ended("j4", NOW_MS + 5, "failed", "other"),
        ended("j5", NOW_MS + 10, "failed"), ended("j6", NOW_MS - 1, "failed"),
    )  # fmt: skip
    await ledger.record(LedgerBatch(jobs=rows))
    of_acme = (
        OutcomeTotal(tenant="acme", outcome="failed", jobs=1, cost_micro_usd=2_000),
        OutcomeTotal(tenant="acme", outcome="succeeded", jobs=2, cost_micro_usd=4_000),
    )
    assert await ledger.outcomes("acme", *day) == of_acme
    of_other = OutcomeTotal(tenant="other", outcome="failed", jobs=1, cost_micro_usd=2_000)
    assert await ledger.outcomes(None, *day) == (*of_acme, of_other)
    assert await ledger.outcomes("nobody", *day) == ()


async def test_decisions_are_added_up_by_day(ledger: Ledger) -> None:
    day = NOW_MS // 86_400_000
    tomorrow_ms = (day + 1) * 86_400_000
    await ledger.record(
        LedgerBatch(
            cycles=(
                a_cycle("1-1", placed=3), a_cycle("1-2", placed=4, status="feasible"),
                a_cycle("1-3", at_ms=tomorrow_ms),
            ),
            gains=(
                a_gain("1-1"), a_gain("1-2", saved_micro_usd=-500_000, more_copies=0),
                a_gain("1-3", at_ms=tomorrow_ms), a_gain("1-3", at_ms=tomorrow_ms, copies=99),
            ),
            predictions=(
                a_prediction("a"), a_prediction("b", actual_ms=400),
                a_prediction("c", actual_ms=901), a_prediction("c", kind="wait", at_ms=tomorrow_ms),
                a_prediction("a", actual_ms=1),
            ),
        )
    )  # fmt: skip
    days = await ledger.decision_days(day * 86_400_000, tomorrow_ms + 1)
    assert [(c.day, c.cycles, c.optimal, c.placed) for c in days.cycles] == [
        (day, 2, 1, 7), (day + 1, 1, 1, 0),
    ]  # fmt: skip
    today, next_day = days.gains
    assert (today.day, today.measured, today.gaining) == (day, 2, 1)
    assert (today.saved_micro_usd, today.more_copies, today.sooner_ms) == (2_000_000, 1, -600)
    assert (next_day.measured, next_day.copies) == (1, 5), "a repeat changes nothing"
    assert [
        (c.day, c.kind, c.predictions, c.within_p50, c.within_p90) for c in days.calibration
    ] == [(day, "start", 3, 1, 2), (day + 1, "wait", 1, 0, 1)]
    only = await ledger.decision_days(tomorrow_ms, tomorrow_ms + 1)
    assert [g.day for g in only.gains] == [c.day for c in only.cycles] == [day + 1]
    assert await ledger.forget_cycles(tomorrow_ms) == 2
    left = await ledger.decision_days(0, tomorrow_ms + 1)
    assert [g.day for g in left.gains] == [c.day for c in left.calibration] == [day + 1]
