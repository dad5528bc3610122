"""Both backends of stored decisions: kept within limits, replaced by a repeat, safe to name."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.feedback.backends.directory_decisions import DirectoryDecisions
from broker.feedback.backends.memory import MemoryDecisions
from broker.feedback.decisions import DecisionLimits, DecisionStore

LIMITS = DecisionLimits(newest=3, size_bytes=1_000)


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> DecisionStore:
    if request.param == "memory":
        return MemoryDecisions(LIMITS)
    return DirectoryDecisions(tmp_path / "decisions", LIMITS)


async def names(store: DecisionStore) -> list[str]:
    return [item.cycle for item in await store.stored()]


async def test_what_is_put_is_got(store: DecisionStore) -> None:
    await store.put("1.1", "", b"one")
    assert await store.get("1.1") == b"one" and await store.get("1.2") is None
    (only,) = await store.stored()
    assert (only.cycle, only.size_bytes, only.why) == ("1.1", 3, "")


async def test_a_repeat_replaces(store: DecisionStore) -> None:
    await store.put("1.1", "", b"one")
    await store.put("1.1", "gap", b"again")
    assert await store.get("1.1") == b"again"
    assert [(item.cycle, item.why) for item in await store.stored()] == [("1.1", "gap")]


async def test_the_newest_stay_by_number_and_not_by_text(store: DecisionStore) -> None:
    for cycle in ("1.9", "1.10", "2.1", "1.11"):
        await store.put(cycle, "", b"x")
    assert await names(store) == ["2.1", "1.11", "1.10"]


async def test_those_with_a_gap_or_an_alarm_outlive_others(store: DecisionStore) -> None:
    await store.put("1.1", "alarm", b"x")
    await store.put("1.2", "gap", b"x")
    for number in range(3, 9):
        await store.put(f"1.{number}", "", b"x")
    assert await names(store) == ["1.8", "1.7", "1.6", "1.2", "1.1"]


async def test_all_together_stay_within_the_bytes(store: DecisionStore) -> None:
    await store.put("1.1", "alarm", b"x" * 400)
    await store.put("1.2", "", b"x" * 400)
    await store.put("1.3", "", b"x" * 400)
    assert await names(store) == ["1.3", "1.1"], "an ordinary one goes first"
    await store.put("1.4", "gap", b"x" * 900)
    assert await names(store) == ["1.4"], "the newest stays"
    await store.put("1.5", "", b"x" * 5_000)
    assert await names(store) == ["1.5"], "also one that is over the limit by itself"


@pytest.mark.parametrize("name", ["", "1", "../1.1", "1.1/x", "1.1.gap", "a.b", "1.\u0661"])
async def test_a_name_that_is_none_is_refused(store: DecisionStore, name: str) -> None:
    with pytest.raises(ValueError, match="a cycle is named"):
        await store.get(name)
    with pytest.raises(ValueError, match="a cycle is named"):
        await store.put(name, "", b"x")
