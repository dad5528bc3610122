"""Records, frames, and what a sequence of records means."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.runs import Runs
from regional_agent.act.keeper import frames, records
from regional_agent.act.keeper.attempt import Attempt, replay
from regional_agent.act.keeper.held import COMPACT_BYTES, pick_up, take_on
from regional_agent.act.keeper.layout import AttemptDir, attempts_dir
from regional_agent.act.keeper.orders import BadOrder, Order, Seat, order_json, order_of
from regional_agent.act.keeper.room import conflict


def order(uid: str = "job-1", **changes: Any) -> Order:
    fields: dict[str, Any] = {
        "uid": uid, "job": "job", "tenant": "team", "argv": ("true",), "run": "",
        "env": (("A", "ü"),), "accelerator": "H100", "cpus_milli": 500, "memory_bytes": 1,
        "max_runtime_s": 2, "grace_s": 3, "replicas": 2, "tasks": Runs(((0, 9),)), "width": 2,
        "places": tuple(Seat("h100", 0, (n,)) for n in range(4)),
    }  # fmt: skip
    return Order(**fields | changes)


def test_an_order_comes_back_as_it_was() -> None:
    assert order_of(json.loads(json.dumps(order_json(order())))) == order()
    assert order_of(order_json(order(tasks=None))) == order(tasks=None)


@pytest.mark.parametrize("broken", [{}, {"width": "many"}, {"places": [1]}, {"tasks": [[3]]}])
def test_what_is_no_order_is_refused(broken: dict[str, Any]) -> None:
    body = order_json(order()) | broken if broken else {}
    with pytest.raises(BadOrder):
        order_of(body)


@pytest.mark.parametrize("uid", ["", "..", "a/b", "A-1", "-a", "a" * 64, "a\n"])
def test_uids_that_are_no_directory_names(tmp_path: Path, uid: str) -> None:
    with pytest.raises(ValueError, match="not an attempt uid"):
        AttemptDir(tmp_path, uid)


@given(st.lists(st.dictionaries(st.text(max_size=5), st.text() | st.integers())), st.data())
def test_frames_survive_any_cut(bodies: list[dict[str, Any]], data: st.DataObject) -> None:
    stream = b"".join(map(frames.encode, bodies))
    reader = frames.FrameReader()
    found = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == bodies


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\1x"])
def test_what_is_no_frame_ends_the_conversation(data: bytes) -> None:
    with pytest.raises(frames.BadFrame):
        frames.FrameReader().feed(data)


@given(st.lists(st.dictionaries(st.text(max_size=5), st.text()), max_size=6), st.data())
def test_a_cut_at_any_byte_loses_only_the_last_record(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[dict[str, Any]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("r") / "journal"
    whole = b"".join(map(records.encode, bodies))
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    found, good_bytes, damaged = records.read(path)
    assert found == bodies[: len(found)] and not damaged
    assert good_bytes == sum(len(records.encode(b)) for b in found)
    file = records.RecordFile(path, good_bytes)
    file.append({"k": "after"})
    file.sync()
    file.close()
    assert records.read(path)[0] == [*found, {"k": "after"}]


# What may happen to an attempt, as the keeper would record it.


def happen(attempt: Attempt, choice: int) -> list[records.Record]:
    """Records of one thing that may happen now, picked by `choice`."""
    live = list(attempt.live.values())
    lanes = attempt.free_lanes()
    options: list[list[records.Record]] = []
    if lanes:
        task = attempt.unstarted.runs[0][0]
        started = [{"k": "intent", "t": task, "lane": lanes[0], "at": choice, "boot": "b"}]
        for rank in range(attempt.order.replicas):
            pid = 100 + task * 2 + rank
            started.append({"k": "pid", "t": task, "r": rank, "pid": pid, "ticks": 1, "at": 1})
        options += [started, started[:1], started[:2]]
    for task in live:
        kinds = [("succeeded", 0), ("failed", choice % 3 + 1), ("lost", 0)]
        kind, code = kinds[choice % 3]
        ends: list[records.Record] = [
            {"k": "exit", "t": task.task, "r": r, "kind": kind, "code": code, "cpu": 5, "rss": 9}
            for r in task.members
        ]
        end = {"k": "task", "t": task.task, "kind": kind, "code": code, "at": 1, "wall": 7}
        options.append([*ends, end])
        options.append([{"k": "cause", "t": task.task, "kind": "timed_out", "code": 0}])
    options.append([{"k": "slice", "tasks": [[choice % 9, 12]], "width": 1, "places": None}])
    options.append([{"k": "cancel", "grace_s": choice % 4}])
    return options[choice % len(options)]


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(0, 40))
def test_a_restart_or_a_summary_at_any_point_changes_nothing(choices: list[int], at: int) -> None:
    written: list[records.Record] = [{"k": "submitted", "at": 1}]
    attempt = replay(order(), written)
    for n, choice in enumerate(choices):
        for record in happen(attempt, choice):
            attempt.apply(record)
            written.append(record)
        if n == at:
            summary = json.loads(json.dumps(attempt.snapshot()))
            attempt = replay(order(), [summary])
        begun = attempt.wanted.difference(attempt.unstarted)
        ended = sum(tasks.runs.count for tasks in attempt.done.values())
        # Every task of the slice is in exactly one place.
        assert begun.count == ended + len(attempt.live)
    again = replay(order(), json.loads(json.dumps(written)))
    assert again.state_json() == attempt.state_json()
    assert json.dumps(again.snapshot()) == json.dumps(attempt.snapshot())


def test_long_records_are_summed_up(tmp_path: Path) -> None:
    attempts_dir(tmp_path).mkdir()
    held = take_on(tmp_path, order(replicas=1, tasks=Runs(((0, 9_999),))), 1)
    held.sync_contents()
    held.sync_names()
    for task in range(10_000):
        held.record({"k": "intent", "t": task, "lane": 0, "at": 1, "boot": "b"})
        end = {"k": "task", "t": task, "kind": "failed", "code": task % 2 + 1, "at": 1, "wall": 1}
        held.record(end)
        if task % 100 == 0:
            held.sync()
    held.sync()
    assert held.place.journal.stat().st_size < 2 * COMPACT_BYTES
    found = pick_up(tmp_path, "job-1", 2)
    assert found is not None
    assert found.attempt.state_json() == held.attempt.state_json()


def test_a_directory_without_an_order_is_no_attempt(tmp_path: Path) -> None:
    AttemptDir(tmp_path, "job-1").work.mkdir(parents=True)
    assert pick_up(tmp_path, "job-1", 1) is None


def test_no_card_twice_and_no_more_cpus_than_there_are() -> None:
    held = Attempt(order("a-1"))
    assert "held by a-1" in conflict(order("b-1"), [held], 0)
    other = order("b-1", places=(Seat("h100", 1, (0,)),))
    assert conflict(other, [held], 0) == ""
    assert conflict(other, [held], 4000) == ""
    assert "4 cpus claimed of 3.999" in conflict(other, [held], 3999)
    twice = order("b-1", places=(Seat("h100", 1, (0,)), Seat("h100", 1, (0,))))
    assert "twice" in conflict(twice, [], 0)


def test_the_gravest_outcome_is_that_of_the_attempt() -> None:
    attempt = Attempt(order(tasks=Runs(((0, 3),))))
    for task, (kind, code) in enumerate(
        [("succeeded", 0), ("failed", 5), ("failed", 2), ("signalled", 9)]
    ):
        attempt.apply({"k": "intent", "t": task, "lane": 0, "at": 1, "boot": "b"})
        end = {"k": "task", "t": task, "kind": kind, "code": code, "at": 1, "wall": 1}
        attempt.apply(end)
        expected = [("succeeded", 0), ("failed", 5), ("failed", 2), ("signalled", 9)][task]
        assert attempt.gravest() == expected
    assert attempt.is_over()
