"""What a leader keeps for others, and what it predicted, is there for the next one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.control.hold_book import read_holds, record_of
from broker.control.wait_book import Predicted, WaitBook
from broker.control.wait_records import PARTS, WaitKeeper, read_waits
from broker.decide.admission.holds import Hold, HoldWhy
from broker.decide.admission.vain import Missed, Vain
from broker.model.jobs import JobPhase
from broker.state import keys
from federation.ids import JobId
from federation.kv import Put, Txn
from tests.unit.control.federation import Federation, Site, until
from tests.unit.lifecycle.builders import a_job

GANG = Hold(
    shape=("t", 100, 2, 8, ("H100", "H200"), ("eu", "us")),
    pool="near/h100",
    priority=100,
    replicas=2,
    size=8,
    why=HoldWhy.GANG,
    since_ms=5,
    until_ms=90_000,
    room_ms=60_000,
    copies=3,
    job="",
    model="H100",
)
MOVE = replace(
    GANG, shape=("t", -1, 1, 8, ("H100",), None), priority=-1, replicas=1, why=HoldWhy.MOVE,
    room_ms=5, copies=1, job="j1", pool="far/h100",
)  # fmt: skip


async def led_again(directory: Path, *records: Put) -> Federation:
    """A federation that has these records, with somebody who leads it."""
    federation = await Federation.make(directory, Site("east"))
    await federation.store.txn(Txn((), records))
    await federation.start()
    return federation


async def test_holds_and_set_back_classes_come_back_as_they_were(tmp_path: Path) -> None:
    recovery = replace(GANG, why=HoldWhy.RECOVERY)
    vain = Vain({"j9": Missed(4, 77_000), "j8": Missed(1, 0)})
    raw = record_of((GANG, recovery, MOVE), vain)
    assert raw == record_of((replace(GANG, room_ms=61_000), MOVE), vain), "no write for a forecast"
    federation = await led_again(tmp_path, Put(keys.HOLDS, raw))
    plane = federation.plane
    assert plane is not None
    holds, missed = read_holds(plane.services.projection)
    assert holds == (replace(GANG, room_ms=GANG.until_ms), MOVE)
    assert missed == Vain({"j9": Missed(4, 77_000)})
    await federation.kill()


@pytest.mark.parametrize("raw", [b"\xff\xff", b"\x12\x02\x4a\x00"])
async def test_a_record_that_cannot_be_read_keeps_nobody_from_leading(
    tmp_path: Path, raw: bytes
) -> None:
    federation = await led_again(tmp_path, Put(keys.HOLDS, raw), Put(keys.WAITS + "00", b"\xff"))
    plane = federation.plane
    assert plane is not None
    assert read_holds(plane.services.projection) == ((), Vain())
    assert read_waits(plane.services.projection) == {}
    await federation.kill()


async def test_predictions_are_written_in_parts_and_taken_over(tmp_path: Path) -> None:
    federation = await led_again(tmp_path)
    assert federation.plane is not None
    office, projection = federation.plane.office, federation.plane.services.projection
    await until(lambda: office.term is not None)
    assert office.term is not None
    books = office.term.books
    jobs = [replace(a_job(), id=JobId(f"j{n:016d}")) for n in range(300)]
    books.install(jobs)
    made = {str(job.id): Predicted(n, n + 5, n + 9) for n, job in enumerate(jobs)}
    waits = WaitBook(lambda job: None)
    keeper = WaitKeeper(waits, books, office.term.committer)
    waits.take_over(made)
    await keeper.write()
    await until(lambda: read_waits(projection) == made)
    assert 1 < len(projection.under(keys.WAITS)) <= PARTS
    books.install([replace(jobs[0], phase=JobPhase.ENDED)])  # it will never show what was right
    await keeper.write()
    await until(lambda: jobs[0].id not in read_waits(projection))
    assert len(read_waits(projection)) == 299
    await federation.kill()
