"""States of array tasks as etcd records: 16,384 tasks a chunk, run-length packed.

Each chunk holds varints `length << 3 | state` from its first task on; exit codes of failed tasks
lie beside them as runs. A million tasks in one state are 62 records of a few bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from broker.model.jobs import FailedTasks, TaskStates
from federation.runs import Runs
from federation.wire import records as pb

SCHEMA = 1
TASKS_PER_CHUNK = 16_384
_UNSTARTED, _SUCCEEDED, _FAILED, _CANCELLED = range(4)


def chunks_touched(before: TaskStates, after: TaskStates) -> tuple[int, ...]:
    """Numbers of the chunks in which a task changed its state."""
    changed = after.ended.difference(before.ended)
    numbers: set[int] = set()
    for first, last in changed.runs:
        numbers.update(range(first // TASKS_PER_CHUNK, last // TASKS_PER_CHUNK + 1))
    return tuple(sorted(numbers))


def encode_chunk(states: TaskStates, number: int) -> bytes:
    """One chunk of the states of an array."""
    first = number * TASKS_PER_CHUNK
    window = Runs.of([(first, first + TASKS_PER_CHUNK - 1)])
    spans = sorted(
        (run_first, run_last, state)
        for state, runs in (
            (_SUCCEEDED, states.succeeded),
            (_FAILED, states.failed_runs),
            (_CANCELLED, states.cancelled),
        )
        for run_first, run_last in runs.intersection(window).runs
    )
    packed = bytearray()
    at = first
    for run_first, run_last, state in spans:
        if run_first > at:
            _varint(packed, (run_first - at) << 3 | _UNSTARTED)
        _varint(packed, (run_last - run_first + 1) << 3 | state)
        at = run_last + 1
    failed = [
        pb.FailedRun(run=pb.Run(first=a, last=b), exit_code=g.exit_code, signal=g.signal)
        for g in states.failed
        for a, b in g.tasks.intersection(window).runs
    ]
    return pb.TaskChunk(
        schema=SCHEMA, first=first, packed=bytes(packed), failed=failed
    ).SerializeToString()


def decode_chunks(values: Iterable[bytes]) -> TaskStates:
    """The states of an array from all its chunks. Raises DecodeError for foreign bytes."""
    by_state: dict[int, list[tuple[int, int]]] = {_SUCCEEDED: [], _CANCELLED: []}
    failed: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for value in values:
        chunk = pb.TaskChunk.FromString(value)
        at = chunk.first
        for number in _varints(chunk.packed):
            length, state = number >> 3, number & 7
            if state in by_state:
                by_state[state].append((at, at + length - 1))
            at += length
        for item in chunk.failed:
            failed.setdefault((item.exit_code, item.signal), []).append(
                (item.run.first, item.run.last)
            )
    return TaskStates(
        succeeded=Runs.of(by_state[_SUCCEEDED]),
        failed=failed_groups({code: Runs.of(runs) for code, runs in failed.items()}),
        cancelled=Runs.of(by_state[_CANCELLED]),
    )


def failed_groups(groups: Mapping[tuple[int, int], Runs]) -> tuple[FailedTasks, ...]:
    """Failed tasks by (exit code, signal), in a fixed order."""
    return tuple(FailedTasks(groups[key], key[0], key[1]) for key in sorted(groups))


def _varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _varints(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            yield number
            number = shift = 0
