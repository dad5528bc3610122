"""Between the values of `federation.kv` and etcd's messages.

Messages are filled in place and fields set one by one: measured twice as fast as nested
constructors, and a group commit carries thousands of operations a second through here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from federation.etcd import etcdwire_pb2 as pb
from federation.kv import (
    Absent,
    Compare,
    Delete,
    DeletePrefix,
    Get,
    KeyValue,
    ModRevisionIs,
    Op,
    OpResult,
    Present,
    Put,
    Txn,
    TxnResult,
    WatchEvent,
)

_NOTHING = OpResult()
_MOD = pb.Compare.CompareTarget.MOD
_VALUE = pb.Compare.CompareTarget.VALUE
_GREATER = pb.Compare.CompareResult.GREATER
_DELETE = pb.Event.EventType.DELETE

# etcd's way to say "from here to the end".
_TO_END = b"\0"


def key_bytes(key: str) -> bytes:
    """A key on the wire. Foreign keys that are not UTF-8 survive the way there and back."""
    return key.encode("utf-8", "surrogateescape")


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all that start with `prefix`; a zero byte = the end of all."""
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        return _TO_END
    return trimmed[:-1] + bytes([trimmed[-1] + 1])


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """Start and end of the range that `prefix` names; empty = every key."""
    start = key_bytes(prefix)
    return start or _TO_END, prefix_end(start)


def key_value(kv: pb.KeyValue) -> KeyValue:
    """One key of an answer."""
    return KeyValue(
        kv.key.decode("utf-8", "surrogateescape"),
        kv.value,
        kv.create_revision,
        kv.mod_revision,
        kv.version,
        kv.lease,
    )


# Requests -------------------------------------------------------------------------------------


def fill_txn(request: pb.TxnRequest, txn: Txn) -> bool:
    """Put `txn` into an empty request; returns whether any branch may write."""
    for compare in txn.compare:
        _fill_compare(request.compare.add(), compare)
    wrote = False
    for op in txn.then:
        wrote |= _fill_op(request.success.add(), op)
    for op in txn.orelse:
        wrote |= _fill_op(request.failure.add(), op)
    return wrote


def _fill_compare(message: pb.Compare, compare: Compare) -> None:
    """Result EQUAL and target VERSION are the defaults."""
    message.key = key_bytes(compare.key)
    kind = type(compare)
    if kind is Absent:
        message.version = 0
    elif kind is Present:
        message.result = _GREATER
        message.version = 0
    elif isinstance(compare, ModRevisionIs):
        message.target = _MOD
        message.mod_revision = compare.revision
    else:
        message.target = _VALUE
        message.value = compare.value  # type: ignore[union-attr]


def _fill_op(message: pb.RequestOp, op: Op) -> bool:
    """Returns whether the operation may write."""
    if isinstance(op, Put):
        put = message.request_put
        put.key = key_bytes(op.key)
        put.value = op.value
        if op.lease:
            put.lease = op.lease
        return True
    if isinstance(op, Txn):
        # Even one with nothing in it must be there, or its place in the answers is lost.
        message.request_txn.SetInParent()
        return fill_txn(message.request_txn, op)
    if isinstance(op, Get):
        message.request_range.key = key_bytes(op.key)
        return False
    delete = message.request_delete_range
    if isinstance(op, Delete):
        delete.key = key_bytes(op.key)
    else:
        delete.key, delete.range_end = prefix_range(op.prefix)
    return True


# Answers --------------------------------------------------------------------------------------


def txn_result(answer: pb.TxnResponse, txn: Txn, revision: int) -> TxnResult:
    """The result of `txn`; nested answers carry no revision, so that of the whole is given."""
    succeeded = answer.succeeded
    ops = txn.then if succeeded else txn.orelse
    return TxnResult(succeeded, revision, _op_results(answer.responses, ops, revision))


def _op_results(
    answers: Sequence[pb.ResponseOp], ops: Sequence[Op], revision: int
) -> tuple[OpResult, ...]:
    if len(answers) != len(ops):
        raise ValueError(f"{len(answers)} answers to {len(ops)} operations")
    if all([type(op) is Put for op in ops]):  # whose answers say nothing, and cost to be looked at
        return (_NOTHING,) * len(ops)
    results: list[OpResult] = []
    for answer, op in zip(answers, ops, strict=True):
        if isinstance(op, Put):
            results.append(_NOTHING)
        elif isinstance(op, Txn):
            results.append(OpResult(txn=txn_result(answer.response_txn, op, revision)))
        elif isinstance(op, Get):
            kvs = answer.response_range.kvs
            results.append(OpResult(kv=key_value(kvs[0])) if kvs else _NOTHING)
        elif isinstance(op, Delete | DeletePrefix):
            results.append(OpResult(deleted=answer.response_delete_range.deleted))
    return tuple(results)


def watch_events(events: Iterable[pb.Event]) -> list[WatchEvent]:
    """Events of an answer, in order."""
    given: list[WatchEvent] = []
    for event in events:
        kv = key_value(event.kv)
        value = None if event.type == _DELETE else kv
        given.append(WatchEvent(kv.key, value, kv.mod_revision))
    return given
