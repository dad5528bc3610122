"""The etcd client: reads, transactions, watches, leases.

Reads are linearizable and tried on further members. A write is sent a second time only where it
certainly was not applied; whatever else goes wrong with one is an `AmbiguousCommit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from federation.etcd import etcdwire_pb2 as pb
from federation.etcd.convert import (
    fill_txn,
    key_bytes,
    key_value,
    prefix_range,
    txn_result,
)
from federation.etcd.endpoints import Endpoint, Timeouts, Tls
from federation.etcd.members import Members, Method
from federation.etcd.watch import watch
from federation.kv import (
    REQUEST_BYTES_MAX,
    Compacted,
    InvalidRequest,
    KeyValue,
    LeaseNotFound,
    RangeResult,
    RequestTooLarge,
    StoreUnavailable,
    Txn,
    TxnResult,
    WatchBatch,
)

_RANGE = Method("/etcdserverpb.KV/Range", pb.RangeResponse)
_TXN = Method("/etcdserverpb.KV/Txn", pb.TxnResponse)
_COMPACT = Method("/etcdserverpb.KV/Compact", pb.CompactionResponse)
_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantResponse)
_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeResponse)
_KEEP = Method("/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse)

# Keys a request asks for at most; a longer range is read in parts at one revision, so that no
# answer holds up the event loop for long.
KEYS_PER_PAGE_MAX = 5000
# A range of "now" whose revision was compacted away meanwhile is begun anew this often.
_RANGE_TRIES = 3


class EtcdClient:
    """One client for all members of a cluster, from one event loop. Satisfies `Store`."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        tls: Tls | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        """Connects on first use. Raises ValueError for endpoints that make no sense."""
        self.members = Members(endpoints, tls, timeouts)

    # Keys -------------------------------------------------------------------------------------

    async def get(self, key: str) -> KeyValue | None:
        """Read one key; None = absent."""
        request = pb.RangeRequest(key=key_bytes(key))
        answer = await self.members.read(_RANGE, request.SerializeToString())
        return key_value(answer.kvs[0]) if answer.kvs else None

    async def range(
        self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0
    ) -> RangeResult:
        """Keys under `prefix` strictly after `after`, at most `limit` (0 = all), as of
        `revision` (0 = now). Raises `Compacted`, `InvalidRequest` for a future revision."""
        for _ in range(_RANGE_TRIES):
            try:
                return await self._range(prefix, after, limit, revision)
            except Compacted:
                if revision > 0:
                    raise
        raise StoreUnavailable("the store is compacted faster than the range can be read")

    async def _range(self, prefix: str, after: str, limit: int, revision: int) -> RangeResult:
        start, end = prefix_range(prefix)
        start = max(start, key_bytes(after) + b"\0") if after else start
        kvs: list[KeyValue] = []
        while True:
            page = min(limit - len(kvs), KEYS_PER_PAGE_MAX) if limit else KEYS_PER_PAGE_MAX
            request = pb.RangeRequest(key=start, range_end=end, limit=page, revision=revision)
            answer = await self.members.read(_RANGE, request.SerializeToString())
            kvs.extend(map(key_value, answer.kvs))
            # The header tells the revision of now, also in an answer about the past.
            revision = revision if revision > 0 else answer.header.revision
            if not answer.more or len(kvs) == limit:
                return RangeResult(tuple(kvs), revision, more=answer.more)
            start = answer.kvs[-1].key + b"\0"

    async def txn(self, txn: Txn) -> TxnResult:
        """Run one transaction. Raises `RequestTooLarge`, `InvalidRequest`, `LeaseNotFound`,
        `SpaceExhausted`, `AmbiguousCommit`; one that only reads is never ambiguous."""
        request = pb.TxnRequest()
        writes = fill_txn(request, txn)
        data = request.SerializeToString()
        if len(data) > REQUEST_BYTES_MAX:
            raise RequestTooLarge(
                f"{len(data)} bytes in one request, at most {REQUEST_BYTES_MAX}"
            )
        call = self.members.write if writes else self.members.read
        answer = await call(_TXN, data)
        return txn_result(answer, txn, answer.header.revision)

    async def compact(self, revision: int) -> None:
        """Forget history before `revision`; an older one again is not an error.

        Raises `InvalidRequest` for a revision of the future.
        """
        request = pb.CompactionRequest(revision=revision)
        try:
            # Doing it twice is the same as once, so it may be repeated like a read.
            await self.members.read(_COMPACT, request.SerializeToString())
        except Compacted:
            return

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchBatch]:
        """Changes under `prefix` from `from_revision` on, for ever; see `federation.etcd.watch`."""
        return watch(self.members, prefix, from_revision)

    # Leases -----------------------------------------------------------------------------------

    async def grant(self, ttl_s: int) -> int:
        """Create a lease and return its id. An ambiguous one leaves at worst a lease that
        ends by itself."""
        if ttl_s < 1:
            raise InvalidRequest(f"a lease of {ttl_s} s")
        request = pb.LeaseGrantRequest(ttl=ttl_s)
        return (await self.members.write(_GRANT, request.SerializeToString())).id

    async def keep(self, lease: int) -> int:
        """Renew a lease once; returns its TTL in seconds. Raises `LeaseNotFound`."""
        data = pb.LeaseKeepAliveRequest(id=lease).SerializeToString()

        async def send(index: int, limit_s: float) -> int:
            call = self.members.stream(index, _KEEP, limit_s=limit_s)
            try:
                await call.write(data)
                answer = await call.read()
            except asyncio.InvalidStateError as ended:
                raise TimeoutError from ended
            finally:
                call.cancel()
            if not isinstance(answer, pb.LeaseKeepAliveResponse):
                raise TimeoutError
            return answer.ttl

        ttl_s = await self.members.attempt(send, wrote=False)
        if ttl_s <= 0:
            raise LeaseNotFound(f"lease {lease} is not known")
        return ttl_s

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys. Raises `LeaseNotFound`."""
        request = pb.LeaseRevokeRequest(id=lease)
        await self.members.write(_REVOKE, request.SerializeToString())

    async def close(self) -> None:
        """Release connections; calls and watches under way end with an error."""
        await self.members.close()
