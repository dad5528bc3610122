"""Tenants: their quota and defaults as records, and as the values decisions are made with."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError

from broker.control.viewing import DEFAULT_TENANT
from broker.model.fleet import TenantPolicy
from broker.state import keys
from broker.state.codec import RecordUnreadable, unknown_part
from broker.state.store import Store
from federation.kv import ModRevisionIs, Put, Txn
from federation.wire import records as pb

SCHEMA = 1
NO_QUOTA = -1


def decode_tenant(key: str, value: bytes) -> TenantPolicy:
    """The policy in a record; zero durations mean the defaults. Raises RecordUnreadable."""
    try:
        record = pb.TenantRecord.FromString(value)
    except DecodeError as error:
        raise RecordUnreadable(f"{key}: {error}") from error
    usual = TenantPolicy(record.tenant)
    quota = record.quota_accelerators
    return TenantPolicy(
        name=record.tenant,
        weight=record.weight or usual.weight,
        quota_accelerators=None if quota < 0 else quota,
        cohort=record.cohort,
        borrow_accelerators=None
        if record.borrow_accelerators < 0 or not record.cohort
        else record.borrow_accelerators,
        cluster_quota=dict(record.cluster_quota),
        default_max_runtime_s=record.default_max_runtime_s or usual.default_max_runtime_s,
        max_runtime_s=record.max_runtime_s or usual.max_runtime_s,
    )


def encode_tenant(policy: TenantPolicy) -> bytes:
    """A policy as its record."""
    quota, borrow = policy.quota_accelerators, policy.borrow_accelerators
    return pb.TenantRecord(
        schema=SCHEMA,
        tenant=policy.name,
        weight=policy.weight,
        quota_accelerators=NO_QUOTA if quota is None else quota,
        cohort=policy.cohort,
        borrow_accelerators=NO_QUOTA if borrow is None else borrow,
        cluster_quota=dict(policy.cluster_quota),
        default_max_runtime_s=policy.default_max_runtime_s,
        max_runtime_s=policy.max_runtime_s,
    ).SerializeToString()


class Tenants:
    """The tenants as this replica sees them. `default` exists without a record."""

    def __init__(self, lookup: Callable[[str], bytes | None]) -> None:
        """`lookup` gives the bytes under a key, None when absent (`Projection.value`)."""
        self._lookup = lookup
        self._seen: dict[str, tuple[bytes | None, TenantPolicy]] = {}

    def known(self, name: str) -> bool:
        """Whether the tenant has a record, or needs none."""
        return name == DEFAULT_TENANT or self._lookup(keys.tenant(name)) is not None

    def policy(self, name: str) -> TenantPolicy:
        """Quota and defaults of a tenant; the usual ones where it has no record."""
        key = keys.tenant(name)
        value = self._lookup(key)
        seen = self._seen.get(name)
        if seen is None or seen[0] != value:
            policy = TenantPolicy(name) if value is None else decode_tenant(key, value)
            seen = self._seen[name] = (value, policy)
        return seen[1]


async def put_tenant(store: Store, policy: TenantPolicy) -> tuple[int, Put]:
    """Write a tenant, keeping fields of a newer version; returns the revision and what was put.

    Raises StoreError.
    """
    key = keys.tenant(policy.name)
    while True:
        found = await store.get(key)
        rest = unknown_part(pb.TenantRecord.FromString(found.value)) if found else b""
        revision = found.mod_revision if found else 0
        put = Put(key, encode_tenant(policy) + rest)
        result = await store.txn(Txn((ModRevisionIs(key, revision),), (put,)))
        if result.succeeded:
            return result.revision, put
