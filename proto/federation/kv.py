"""Values and errors of a revisioned key-value store with etcd's semantics.

Shared by the etcd client (`federation.etcd`) and the broker's `Store` port, so that the memory
twin and the real one speak the same words. Keys are text, values bytes. What is made for every
record on its way is a named tuple: made several times faster than a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class KeyValue(NamedTuple):
    """One key as it stood at a revision. `version` counts writes since creation (1 = new)."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


# Compares -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Absent:
    """True when the key does not exist."""

    key: str


@dataclass(frozen=True, slots=True)
class Present:
    """True when the key exists."""

    key: str


@dataclass(frozen=True, slots=True)
class ModRevisionIs:
    """True when the key was last written at exactly this revision (0 = does not exist)."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class ValueIs:
    """True when the key exists and holds exactly these bytes."""

    key: str
    value: bytes


Compare = Absent | Present | ModRevisionIs | ValueIs

# Operations -----------------------------------------------------------------------------------


class Put(NamedTuple):
    """Write a key; `lease` 0 = none."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one key; deleting an absent key is not an error."""

    key: str


@dataclass(frozen=True, slots=True)
class DeletePrefix:
    """Delete every key that starts with `prefix`."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Get:
    """Read one key inside a transaction."""

    key: str


class Txn(NamedTuple):
    """If every compare holds run `then`, else `orelse`; may be nested as an operation.

    Every compare, nested ones too, is judged on the state before the whole transaction; a `Get`
    sees the writes before it. Limits measured on etcd 3.4: compares and operations <= 128 a
    level, and an inner transaction's budget is 128 less the longest list of the outer; 1.5 MiB
    a request. One key may be put once, and not be both put and deleted.
    """

    compare: tuple[Compare, ...] = ()
    then: tuple[Op, ...] = ()
    orelse: tuple[Op, ...] = ()


Op = Put | Delete | DeletePrefix | Get | Txn

OPS_PER_TXN_MAX = 128
REQUEST_BYTES_MAX = 1_500_000  # a little under etcd's 1.5 MiB request limit


# Answers --------------------------------------------------------------------------------------


class OpResult(NamedTuple):
    """What one operation of a transaction gave.

    `kv` for Get (None = absent), `deleted` for deletes, `txn` for a nested transaction.
    """

    kv: KeyValue | None = None
    deleted: int = 0
    txn: TxnResult | None = None


class TxnResult(NamedTuple):
    """Whether the compares held, the store's revision after, and one result per operation run.

    A nested result carries the revision of the whole.
    """

    succeeded: bool
    revision: int
    results: tuple[OpResult, ...] = ()


@dataclass(frozen=True, slots=True)
class RangeResult:
    """Keys in order, the revision they were read at, and whether `limit` cut the answer."""

    kvs: tuple[KeyValue, ...]
    revision: int
    more: bool = False


class WatchEvent(NamedTuple):
    """A put (`kv` new value) or a delete (`kv` None)."""

    key: str
    kv: KeyValue | None
    mod_revision: int


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """All events of one or more whole revisions, never half a revision.

    An empty `events` is a progress notification: nothing up to `revision` is outstanding.
    """

    revision: int
    events: Sequence[WatchEvent]


# Errors ---------------------------------------------------------------------------------------


class StoreError(Exception):
    """Base of what a store may raise."""


class StoreUnavailable(StoreError):
    """The store did not take the request; it was certainly not applied. Try again later."""

    def __init__(self, text: str, retry_after_s: float = 1.0) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class AmbiguousCommit(StoreError):
    """A write may or may not have been applied: read back before repeating anything."""


class Compacted(StoreError):
    """The revision asked for is compacted away; re-list, then watch from there.

    `revision` is the oldest revision still readable, 0 where the server did not say.
    """

    def __init__(self, revision: int) -> None:
        super().__init__(f"revisions before {revision} are compacted")
        self.revision = revision


class PermissionDenied(StoreError):
    """The store refuses this identity this key. Final: repeating does not help."""


class RequestTooLarge(StoreError):
    """More operations or bytes than one request may carry. Final."""


class LeaseNotFound(StoreError):
    """The lease expired or was revoked."""


class SpaceExhausted(AmbiguousCommit):
    """The store is over its quota and takes no writes until compacted and defragmented.

    Ambiguous, because etcd applies the write that crosses the line and still answers with this;
    later ones are refused unapplied.
    """


class InvalidRequest(StoreError):
    """The request makes no sense (same key written twice, empty key, revision of the future).

    Not applied. Final: a mistake of the caller.
    """


class AlreadyExists(InvalidRequest):
    """What was to be created (a user, a role, a lease id) is there already."""
