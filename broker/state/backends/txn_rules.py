"""What etcd refuses before it runs a transaction, computed here for the memory backend."""

from __future__ import annotations

from collections.abc import Iterable

from federation.kv import (
    OPS_PER_TXN_MAX,
    REQUEST_BYTES_MAX,
    Absent,
    Compare,
    Delete,
    DeletePrefix,
    InvalidRequest,
    ModRevisionIs,
    Op,
    Present,
    Put,
    RequestTooLarge,
    Txn,
    ValueIs,
)


def check(txn: Txn) -> None:
    """Raise what etcd would: `RequestTooLarge` for too many operations or bytes,
    `InvalidRequest` for an empty key or one written twice."""
    _check_counts(txn, OPS_PER_TXN_MAX)
    for branch in (txn.then, txn.orelse):
        _written(branch)
    size = request_bytes(txn)
    if size > REQUEST_BYTES_MAX:
        raise RequestTooLarge(f"{size} bytes in one request, at most {REQUEST_BYTES_MAX}")


def _check_counts(txn: Txn, budget: int) -> None:
    """Each level may use what the longest list of the level above left of the budget."""
    longest = max(len(txn.compare), len(txn.then), len(txn.orelse))
    if longest > budget:
        raise RequestTooLarge(f"{longest} operations in one transaction, at most {budget}")
    for compare in txn.compare:
        _check_key(compare.key)
    for op in (*txn.then, *txn.orelse):
        if isinstance(op, Txn):
            _check_counts(op, budget - longest)
        elif not isinstance(op, DeletePrefix):
            _check_key(op.key)


def _check_key(key: str) -> None:
    if not key:
        raise InvalidRequest("a key is empty")


# Keys written twice ---------------------------------------------------------------------------


class _Deletes:
    """Keys and prefixes that some operations delete."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self._keys = {op.key for op in ops if isinstance(op, Delete)}
        self._prefixes = {op.prefix for op in ops if isinstance(op, DeletePrefix)}

    def cover(self, key: str) -> bool:
        return key in self._keys or any(key.startswith(p) for p in self._prefixes)

    def join(self, other: _Deletes) -> None:
        self._keys |= other._keys
        self._prefixes |= other._prefixes


def _written(ops: tuple[Op, ...]) -> tuple[set[str], _Deletes]:
    """Keys put and deleted by `ops` and what is nested in them.

    etcd's own order of checking, with its blind spot: a nested transaction may delete what one
    before it puts. Deletes may overlap; the two branches of one transaction exclude each other.
    """
    deletes = _Deletes(ops)
    puts: set[str] = set()
    for op in ops:
        if isinstance(op, Txn):
            then_puts, then_deletes = _written(op.then)
            else_puts, else_deletes = _written(op.orelse)
            _add_puts(puts, deletes, then_puts)
            _add_puts(puts, deletes, else_puts - then_puts)
            deletes.join(then_deletes)
            deletes.join(else_deletes)
    for op in ops:
        if isinstance(op, Put):
            _add_puts(puts, deletes, (op.key,))
    return puts, deletes


def _add_puts(puts: set[str], deletes: _Deletes, keys: Iterable[str]) -> None:
    for key in keys:
        if key in puts or deletes.cover(key):
            raise InvalidRequest(f"key {key!r} is written twice in one transaction")
        puts.add(key)


# Bytes on the wire ----------------------------------------------------------------------------


def request_bytes(txn: Txn) -> int:
    """Size of the protobuf message the etcd client would send for `txn`."""
    size = sum(_field(_compare_bytes(compare)) for compare in txn.compare)
    # An operation is a message in a oneof in a list: two tags and lengths.
    size += sum(_field(_field(_op_bytes(op))) for op in txn.then)
    return size + sum(_field(_field(_op_bytes(op))) for op in txn.orelse)


def _op_bytes(op: Op) -> int:
    match op:
        case Put():
            size = _text_field(op.key)
            if op.value:
                size += _field(len(op.value))
            return size + (1 + _varint(op.lease) if op.lease else 0)
        case DeletePrefix():
            return _prefix_bytes(op.prefix)
        case Txn():
            return request_bytes(op)
        case _:
            return _text_field(op.key)


def _prefix_bytes(prefix: str) -> int:
    """Start and end of the range; both are one zero byte for "every key"."""
    return 2 * _text_field(prefix) if prefix else 2 * _field(1)


def _compare_bytes(compare: Compare) -> int:
    """Result and target are left out where they are 0 (equal, version)."""
    size = _text_field(compare.key)
    match compare:
        case ModRevisionIs():
            return size + 2 + 1 + _varint(compare.revision)
        case ValueIs():
            return size + 2 + _field(len(compare.value))
        case Present():
            return size + 2 + 2
        case Absent():
            return size + 2


def _text_field(text: str) -> int:
    return _field(len(text) if text.isascii() else len(text.encode()))


def _field(length: int) -> int:
    return 1 + _varint(length) + length


def _varint(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)
