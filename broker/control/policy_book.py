"""Policies as records: the versions in force as this replica sees them, and writing new ones.

`policies/<name>` holds the version in force, `policies/<name>/v/<n>` every version there ever was.
Both are written in one transaction that compares the version before it, so numbers are never
given twice and history is never rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from google.protobuf.message import DecodeError

from broker.control.policies import govern, not_the_newest
from broker.control.policy_text import InvalidPolicy, read_policy
from broker.model.policies import Policies, PolicyVersion, Ruling
from broker.state import keys
from broker.state.codec import RecordUnreadable
from broker.state.store import Store
from federation.jobs import FieldError, JobSpec
from federation.kv import KeyValue, ModRevisionIs, Put, Txn
from federation.wire import records as pb

SCHEMA = 1
SOURCES_KEPT = 512
RULINGS_KEPT = 1_000
"""Most jobs are copies of one seen lately."""


class Records(Protocol):
    """What the book reads (`broker.state.projection.Projection`)."""

    policy_changes: int

    def value(self, key: str) -> bytes | None:
        """The bytes of one record."""

    def under(self, prefix: str) -> list[KeyValue]:
        """All records under a prefix, in key order."""


class VersionConflict(Exception):
    """The policy is not at the version the writer expected; the text says at which it is."""


class NoSuchVersion(Exception):
    """There is no such policy, or no such version of it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A version to write. `expected` is the version that must be in force (None = any, 0 = the
    policy must be new)."""

    source: str
    now_ms: int
    subject: str
    why: str = ""
    expected: int | None = None
    restores: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """The version in force after a write; `unchanged` when it was so before."""

    version: PolicyVersion
    unchanged: bool = False


class PolicyBook:
    """The policies as this replica sees them."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._changes = -1
        self._policies = Policies()
        self._sources: dict[str, PolicyVersion | InvalidPolicy] = {}
        self._rulings: dict[str, Ruling] = {}

    @property
    def stamp(self) -> int:
        """Moves whenever a policy does: what was ruled under another stamp is to be ruled anew."""
        return self._records.policy_changes

    def policies(self) -> Policies:
        """All policies in force."""
        if self._changes != self.stamp:
            self._changes = self.stamp
            self._policies = self._read()
            self._rulings.clear()
        return self._policies

    def free(self, spec: JobSpec) -> bool:
        """Whether no policy has a say in a job: there is none, and it names none."""
        policies = self.policies()
        said = policies.current or policies.unreadable or spec.placement.policy is not None
        return not said

    def govern(self, spec: JobSpec, digest: str = "") -> Ruling:
        """What the policies in force make of a job (its tenant filled in). `digest`, of the spec
        as stored, finds the ruling of an equal job; empty where there is none."""
        policies = self.policies()
        ruling = self._rulings.get(digest)
        if ruling is None:
            ruling = govern(spec, policies)
            if digest:
                if len(self._rulings) >= RULINGS_KEPT:
                    self._rulings.clear()
                self._rulings[digest] = ruling
        return ruling

    def version(self, name: str, version: int) -> PolicyVersion | None:
        """One version, in force or not; None where there is none or it cannot be read."""
        raw = self._records.value(keys.policy_version(name, version))
        if raw is None:
            return None
        found = self._decoded(raw)
        return found if isinstance(found, PolicyVersion) else None

    def history(self, name: str) -> list[PolicyVersion]:
        """Every version that can be read, oldest first."""
        found = (self._decoded(kv.value) for kv in self._records.under(keys.policy_versions(name)))
        return [version for version in found if isinstance(version, PolicyVersion)]

    def faults(self, spec: JobSpec) -> list[FieldError]:
        """Why a job may not be submitted under the policies in force, both sides named."""
        policies = self.policies()
        ruling = govern(spec, policies, self._regions_of(spec.placement.clusters))
        pinned = not_the_newest(spec, policies)
        conflicts = (*ruling.conflicts, pinned) if pinned else ruling.conflicts
        return [FieldError(c.path, c.value, c.problem, c.remedy) for c in conflicts]

    def _regions_of(self, clusters: Iterable[str]) -> dict[str, str]:
        found = {}
        for cluster in clusters:
            raw = self._records.value(keys.cluster(cluster))
            if raw is not None:
                found[cluster] = pb.ClusterRecord.FromString(raw).region
        return found

    def _read(self) -> Policies:
        current: dict[str, PolicyVersion] = {}
        unreadable: dict[str, str] = {}
        for kv in self._records.under(keys.POLICIES):
            name = kv.key[len(keys.POLICIES) :]
            if "/" in name:
                continue
            try:
                found = self._decoded(kv.value)
            except DecodeError as error:
                unreadable[name] = str(error)
                continue
            if isinstance(found, PolicyVersion):
                current[name] = found
            else:
                unreadable[name] = str(found.faults[0])
        return Policies(current, self.version, unreadable)

    def _decoded(self, raw: bytes) -> PolicyVersion | InvalidPolicy:
        record = pb.PolicyRecord.FromString(raw)
        found = self._sources.get(record.source)
        if found is None:
            try:
                found = PolicyVersion(read_policy(record.source), 0)
            except InvalidPolicy as invalid:
                found = invalid
            if len(self._sources) >= SOURCES_KEPT:
                self._sources.clear()
            self._sources[record.source] = found
        if isinstance(found, InvalidPolicy):
            return found
        return replace(
            found,
            version=record.version,
            created_ms=record.created_ms,
            subject=record.subject,
            why=record.why,
            restores=record.restores,
            source=record.source,
        )


async def write_policy(
    store: Store, change: Change, folded: Callable[[int, tuple[Put, ...]], None]
) -> Written:
    """Make a text the version in force. The same text as is in force changes nothing.

    `folded` is told the revision and what was put. Raises InvalidPolicy, VersionConflict,
    RecordUnreadable, StoreError.
    """
    policy = read_policy(change.source)
    key = keys.policy(policy.name)
    while True:
        found = await store.get(key)
        before = _record(key, found.value) if found else pb.PolicyRecord()
        if change.expected is not None and change.expected != before.version:
            at = f"at version {before.version}" if before.version else "not there yet"
            raise VersionConflict(f"policy {policy.name} is {at}, not at {change.expected}")
        if before.version and before.source == change.source:
            return Written(_version_of(before), unchanged=True)
        record = pb.PolicyRecord(
            schema=SCHEMA,
            policy=policy.name,
            version=before.version + 1,
            source=change.source,
            created_ms=change.now_ms,
            subject=change.subject,
            why=change.why,
            restores=change.restores,
        )
        raw = record.SerializeToString()
        puts = (Put(key, raw), Put(keys.policy_version(policy.name, record.version), raw))
        compare = (ModRevisionIs(key, found.mod_revision if found else 0),)
        result = await store.txn(Txn(compare, puts))
        if result.succeeded:
            folded(result.revision, puts)
            return Written(_version_of(record))


async def restore_policy(
    store: Store, name: str, to: int, change: Change, folded: Callable[[int, tuple[Put, ...]], None]
) -> Written:
    """Bring back the text of an older version, as a new version (`change.source` is not read).

    Raises NoSuchVersion, and what `write_policy` raises.
    """
    found = await store.get(keys.policy_version(name, to))
    if found is None:
        raise NoSuchVersion(f"no version {to} of policy {name}")
    source = _record(found.key, found.value).source
    return await write_policy(store, replace(change, source=source, restores=to), folded)


def _record(key: str, value: bytes) -> pb.PolicyRecord:
    try:
        return pb.PolicyRecord.FromString(value)
    except DecodeError as error:
        raise RecordUnreadable(f"{key}: {error}") from error


def _version_of(record: pb.PolicyRecord) -> PolicyVersion:
    return PolicyVersion(
        read_policy(record.source),
        record.version,
        record.created_ms,
        record.subject,
        record.why,
        record.restores,
        record.source,
    )
