"""The store port: what the broker asks of etcd, and nothing more.

Two backends (`backends.etcd`, `backends.memory`) pass one conformance suite. Values and errors are
in `federation.kv`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from federation.kv import KeyValue, RangeResult, Txn, TxnResult, WatchBatch


class Store(Protocol):
    """A linearizable key-value store with one global revision.

    Every method may raise `StoreUnavailable` (not applied) and `PermissionDenied`; writes may raise
    `AmbiguousCommit` (perhaps applied). Nothing here retries a write.
    """

    async def get(self, key: str) -> KeyValue | None:
        """Read one key, linearizable."""

    async def range(
        self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0
    ) -> RangeResult:
        """Read keys under `prefix` in key order, strictly after key `after`, at most `limit`
        (0 = all), as of `revision` (0 = now). Raises `Compacted`."""

    async def txn(self, txn: Txn) -> TxnResult:
        """Run one transaction. Raises `RequestTooLarge` for more than the limits of `Txn`."""

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchBatch]:
        """Yield every change under `prefix` from `from_revision` on, in order, for ever.

        Reconnects by itself and resumes after the last event seen. Raises `Compacted` when the
        resume revision is gone, `PermissionDenied` when refused.
        """

    async def grant(self, ttl_s: int) -> int:
        """Create a lease; returns its id."""

    async def keep(self, lease: int) -> int:
        """Renew a lease once; returns the new TTL in seconds. Raises `LeaseNotFound`."""

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys. Raises `LeaseNotFound`."""

    async def compact(self, revision: int) -> None:
        """Forget history before `revision`; an older one again is not an error."""

    async def close(self) -> None:
        """Release connections. Nothing may be called after."""
