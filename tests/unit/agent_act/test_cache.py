"""The agent's cache: what is fetched once, what goes first, what is never taken on trust."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from federation.refusals import Refusal, RefusalCode
from regional_agent.act.blobs import BlobUnavailable
from regional_agent.act.cache import Bad, BlobCache
from regional_agent.act.cache_index import CacheIndex
from regional_agent.act.cache_value import HALF_LIFE_S, Item, Kind, Pace, pace_of, victims, worth_s
from regional_agent.act.stage import Staged, StageFile, Stager, StageRequest
from tests.unit.agent_act.test_stage import Shelf, Ticking, member, tar_of, work

MIB = 2**20


def item(name: str, size_bytes: int, **more: int) -> Item:
    kind = Kind.ARCHIVE if "cost_ms" in more else Kind.BLOB
    return Item(kind, name, size_bytes, more.get("cost_ms", 0), more.get("used_ms", 0))


# Worth: pure ----------------------------------------------------------------------------------


def test_the_pace_is_measured_on_what_is_large_and_the_rest_on_what_is_small():
    pace = pace_of([(10 * MIB, 1_000), (30 * MIB, 1_000), (100, 20), (200, 40), (300, 30)])
    assert pace.measured_bytes_per_s == 20 * MIB
    assert pace.fetch_s == 0.03
    assert pace.seconds(20 * MIB) == pytest.approx(1.03)


def test_nothing_measured_is_not_taken_for_a_measurement():
    assert pace_of([]).measured_bytes_per_s == 0
    assert pace_of([]).bytes_per_s > 0


def test_what_is_slow_to_have_again_outlives_what_is_not_of_the_same_age():
    slow, fast = item("a", MIB, cost_ms=60_000), item("b", MIB)
    assert victims([slow, fast], MIB, 0, Pace(10e6)) == (fast,)


def test_many_small_files_cost_more_to_have_again_than_one_large_of_their_bytes():
    small = [item(f"s{n}", 1_000) for n in range(5)]
    large = item("l", 5_000_000)
    assert victims([*small, large], 1_000, 0, Pace(10e6, 0.05)) == (large,)


def test_half_a_life_without_use_halves_the_worth():
    now_ms = int(HALF_LIFE_S * 1000)
    pace = Pace(10e6)
    assert worth_s(item("a", MIB), now_ms, pace) == pytest.approx(
        worth_s(item("a", MIB, used_ms=now_ms), now_ms, pace) / 2
    )


def test_pinned_items_stay_even_if_that_is_not_enough():
    assert victims([item("a", MIB), item("b", MIB)], 2 * MIB, 0, Pace(), {"a"}) == (
        item("b", MIB),
    )


# On disk --------------------------------------------------------------------------------------


async def test_the_index_outlives_the_agent_and_orders_what_goes_first(tmp_path: Path) -> None:
    shelf, clock = Shelf(), Ticking()
    blobs = [shelf.put(bytes([n]) * 100) for n in range(3)]
    cache = BlobCache(tmp_path, shelf, clock, 300)
    for blob in blobs:
        clock.s += 3_600
        await cache.have([blob])
    clock.s += 3_600
    await cache.have([blobs[0]])  # the oldest is used again
    await cache.close()
    os.utime(tmp_path / "blobs" / blobs[0], (1, 1))  # what the disk says does not count
    again = BlobCache(tmp_path, shelf, clock, 200)
    found = await again.inventory(10)
    assert {i.sha256 for i in found.items} == {blobs[0], blobs[2]}
    assert (found.total_bytes, found.total_items, found.limit_bytes) == (200, 2, 200)


async def test_a_lost_index_costs_knowledge_and_no_blob(tmp_path: Path) -> None:
    shelf = Shelf()
    blob = shelf.put(b"data")
    cache = BlobCache(tmp_path, shelf, Ticking())
    await cache.have([blob])
    await cache.close()
    (tmp_path / "cache.db").write_bytes(b"no database at all" * 100)
    for tail in ("-wal", "-shm"):
        (tmp_path / f"cache.db{tail}").unlink(missing_ok=True)
    (tmp_path / "blobs" / "half.part").write_bytes(b"x")
    again = BlobCache(tmp_path, shelf, Ticking())
    assert (await again.have([blob])).found_bytes == 4
    assert os.listdir(tmp_path / "blobs") == [blob]
    assert shelf.fetched == [blob]


async def test_two_that_need_the_same_blob_fetch_it_once(tmp_path: Path) -> None:
    shelf = Shelf()
    blob = shelf.put(b"data")
    cache = BlobCache(tmp_path, shelf, Ticking())
    got = await asyncio.gather(cache.have([blob]), cache.have([blob, blob]))
    assert sorted(g.fetched_bytes for g in got) == [0, 4]
    assert shelf.fetched == [blob]


async def test_one_blob_that_fails_ends_the_others_and_leaves_nothing_half(tmp_path: Path) -> None:
    shelf = Shelf()
    good = shelf.put(b"data")
    cache = BlobCache(tmp_path, shelf, Ticking())
    with pytest.raises(Bad) as bad:
        await cache.have([good, "0" * 64])
    assert bad.value.refusal.code is RefusalCode.UNKNOWN_BLOB
    assert not [name for name in os.listdir(tmp_path / "blobs") if name.endswith(".part")]


async def test_a_cached_blob_somebody_wrote_to_is_fetched_again(tmp_path: Path) -> None:
    shelf = Shelf()
    blob = shelf.put(b"true")
    stager = Stager(tmp_path / "state", BlobCache(tmp_path / "state", shelf, Ticking()))
    request = StageRequest("job-1", files=(StageFile("f", blob),))
    assert await stager.stage(request) == Staged(4, 0)
    (tmp_path / "state/blobs" / blob).write_bytes(b"evil")
    assert await stager.stage(request) == Staged(4, 0)
    assert (work(tmp_path) / "f").read_bytes() == b"true"


async def test_an_archive_used_again_is_kept_unpacked_and_still_checked(tmp_path: Path) -> None:
    shelf = Shelf()
    archive = shelf.put(tar_of(member("src/a.py", b"a"), member("run", b"r", 0o755)))
    cache = BlobCache(tmp_path / "state", shelf, Ticking())
    stager = Stager(tmp_path / "state", cache)
    for n in range(1, 5):
        assert isinstance(await stager.stage(StageRequest(f"job-{n}", archive)), Staged)
        there = work(tmp_path, f"job-{n}")
        assert (there / "src/a.py").read_bytes() == b"a"
        assert (there / "run").stat().st_mode & 0o777 == 0o700
        kinds = [i.kind for i in (await cache.inventory(10)).items]
        assert (Kind.ARCHIVE in kinds) == (n > 1)
        if n == 3:  # a job of the same user gets at the copy
            (tmp_path / "state/archives" / archive / "src/a.py").write_bytes(b"evil")
    (work(tmp_path, "job-4") / "src/a.py").write_bytes(b"its own")
    assert isinstance(await stager.stage(StageRequest("job-5", archive)), Staged)
    assert (work(tmp_path, "job-5") / "src/a.py").read_bytes() == b"a"
    assert shelf.fetched == [archive]


async def test_what_is_staged_now_is_not_evicted_by_another(tmp_path: Path) -> None:
    shelf = Shelf()
    mine, other = shelf.put(b"m" * 100), shelf.put(b"o" * 100)
    cache = BlobCache(tmp_path, shelf, Ticking(), 100)
    with cache.pinned([mine]):
        await cache.have([mine])
        await cache.have([other])
        await cache.trim()
        assert [i.sha256 for i in (await cache.inventory(9)).items] == [mine]


async def test_warming_takes_its_share_only(tmp_path: Path) -> None:
    shelf = Shelf()
    small, large = shelf.put(b"s" * 100), shelf.put(b"l" * 300)
    stager = Stager(tmp_path, BlobCache(tmp_path, shelf, Ticking(), 1_000))
    assert await stager.warm(small, 100) == Staged(100, 0)
    assert await stager.warm(small, 100) == Staged(0, 100)
    refused = await stager.warm(large, 300)
    assert isinstance(refused, Refusal) and refused.code is RefusalCode.DISK_FULL
    assert shelf.fetched == [small]


async def test_a_source_that_breaks_off_is_told_from_one_that_refuses(tmp_path: Path) -> None:
    shelf = Shelf()
    blob = shelf.put(b"data")
    shelf.broken = True
    cache = BlobCache(tmp_path, shelf, Ticking())
    with pytest.raises(Bad) as bad:
        await cache.have([blob])
    assert bad.value.refusal.code is RefusalCode.STAGE_FAILED
    assert isinstance(bad.value.__cause__, BlobUnavailable)
    shelf.broken = False
    assert (await cache.have([blob])).fetched_bytes == 4


def test_an_index_that_is_closed_while_it_is_opened_breaks_nothing(tmp_path):
    index = CacheIndex(tmp_path)
    for _ in range(200):
        opening = threading.Thread(target=index.open)
        opening.start()
        index.close()
        opening.join()
        index.close()
