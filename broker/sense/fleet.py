"""The fleet as of now: identities and reports from etcd, sessions as this replica sees them.

A capacity report counts only while its session is open and while it is younger than the limit;
otherwise capacity is unknown, and unknown is zero for placement and shown as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from broker.model.fleet import (
    Capacity,
    ClusterIdentity,
    ClusterState,
    ClusterView,
    Fleet,
    PoolPrice,
    TenantPolicy,
)
from broker.sense.reports import (
    ReportRefused,
    cache_from,
    capacity_from,
    data_rates_from,
    prices_from,
    round_trips_from,
)
from broker.state import keys
from broker.state.projection import Projection
from federation.ids import Cluster, Region
from federation.kv import KeyValue
from federation.refusals import Refusal, RefusalCode
from federation.units import format_duration
from federation.wire import records as pb

CAPACITY_AGE_MAX_MS = 60_000
"""Four report intervals of 15 s: an older figure is no longer known (peers showed 90 minutes)."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """What this replica knows of a cluster's session."""

    connected_since_ms: int = 0
    silent_since_ms: int = 0
    reported: bool = False
    handshake_ms: int = 0
    cold_handshake_ms: int = 0


def identity_from(record: pb.ClusterRecord) -> ClusterIdentity:
    """A cluster record as a value."""
    return ClusterIdentity(
        name=Cluster(record.cluster),
        region=Region(record.region),
        state=ClusterState(record.state or "invited"),
        scheduler=record.scheduler,
        isolation=record.isolation,
        capabilities=tuple(record.capabilities),
        certificate_serial=record.certificate_serial,
        certificate_expires_ms=record.certificate_expires_ms,
        sealing_key=record.sealing_key,
        joined_ms=record.joined_ms,
        version=record.version,
        journal=record.journal,
        instance=record.instance,
        revoked_serials=tuple(record.revoked_serials),
        tenants=tuple(record.tenants),
        drain_deadline_ms=record.drain_deadline_ms,
    )


def read_identities(projection: Projection) -> dict[str, ClusterIdentity]:
    """Every cluster by name, removed ones too. A record this version cannot read is left out."""
    found: dict[str, ClusterIdentity] = {}
    for kv in projection.under(keys.CLUSTERS):
        try:
            identity = identity_from(pb.ClusterRecord.FromString(kv.value))
        except (DecodeError, ValueError):
            continue
        found[identity.name] = identity
    return found


def read_fleet(projection: Projection, sessions: Mapping[str, SessionState]) -> Fleet:
    """Every cluster that is not removed, with its reports."""
    return FleetReader(projection).read(sessions)


class FleetReader:
    """Reads the fleet again and again: a record is taken apart once per change."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self._views: dict[str, tuple[tuple[int, ...], ClusterView]] = {}

    def read(self, sessions: Mapping[str, SessionState]) -> Fleet:
        """Every cluster that is not removed, with its reports."""
        views: dict[Cluster, ClusterView] = {}
        for kv in self._projection.under(keys.CLUSTERS):
            view = self._view(kv)
            if view is None:
                continue
            state = sessions.get(view.identity.name, SessionState())
            views[view.identity.name] = replace(
                view,
                connected_since_ms=state.connected_since_ms,
                silent_since_ms=state.silent_since_ms,
                reported=state.reported,
                handshake_ms=state.handshake_ms,
                cold_handshake_ms=state.cold_handshake_ms,
            )
        return Fleet(views)

    def _view(self, kv: KeyValue) -> ClusterView | None:
        name = keys.last_part(kv.key)
        reports = [keys.report(name, kind) for kind in ("capacity", "price", "latency", "cache")]
        stand = (kv.mod_revision, *map(self._projection.mod_revision, reports))
        known = self._views.get(name)
        if known is not None and known[0] == stand:
            return known[1]
        self._views.pop(name, None)
        try:
            identity = identity_from(pb.ClusterRecord.FromString(kv.value))
        except (DecodeError, ValueError):
            return None  # of a newer version: nothing is placed where so little is known
        if identity.state is ClusterState.REMOVED:
            return None
        view = ClusterView(identity)
        for report in reports:
            raw = self._projection.value(report)
            view = view if raw is None else _with_raw_report(view, raw)
        self._views[name] = stand, view
        return view


def _with_raw_report(view: ClusterView, raw: bytes) -> ClusterView:
    try:
        return _with_report(view, pb.ReportEnvelope.FromString(raw))
    except (ReportRefused, DecodeError):
        return view  # what a newer replica accepted and this one does not understand


def _with_report(view: ClusterView, envelope: pb.ReportEnvelope) -> ClusterView:
    what = envelope.WhichOneof("what")
    if what == "capacity":
        return replace(view, capacity=capacity_from(envelope.capacity, envelope.received_ms))
    if what == "price":
        prices, _ = prices_from(envelope.price)
        by_pool: dict[str, PoolPrice] = {price.pool: price for price in prices}
        return replace(view, prices=by_pool, price_received_ms=envelope.received_ms)
    if what == "latency":
        trips = round_trips_from(envelope.latency)
        rates = data_rates_from(envelope.latency, envelope.received_ms)
        return replace(
            view,
            round_trips=trips,
            data_rates=rates,
            latency_received_ms=envelope.received_ms,
        )
    if what == "cache":
        return replace(view, cache=cache_from(envelope.cache, envelope.received_ms))
    return view


def unusable(view: ClusterView, now_ms: int) -> Refusal | None:
    """Why nothing may be placed on a cluster now, whatever the job; None = it takes jobs."""
    name, capacity = view.identity.name, view.capacity
    if view.identity.state is ClusterState.INVITED:
        return Refusal(
            RefusalCode.CLUSTER_UNREACHABLE, name, available="invited, has never joined"
        )
    if not view.connected:
        since = view.silent_since_ms
        age = "silent" if capacity else "has joined, its agent never reported"
        if since:
            age = f"silent for {format_duration((now_ms - since) // 1000)}"
        return Refusal(
            RefusalCode.CLUSTER_UNREACHABLE, name, available=age, advice="wait for the site"
        )
    if view.identity.state is ClusterState.DRAINING:
        return Refusal(RefusalCode.DRAINING, name, available="draining by its operators")
    if capacity is None or not view.reported:
        return Refusal(
            RefusalCode.CAPACITY_UNKNOWN, name, available="has not reported in this session yet"
        )
    age_ms = now_ms - capacity.received_ms
    if age_ms > CAPACITY_AGE_MAX_MS:
        return Refusal(
            RefusalCode.CAPACITY_STALE,
            name,
            needed=f"a report younger than {CAPACITY_AGE_MAX_MS // 1000} s",
            available=f"one {age_ms // 1000} s old",
        )
    return _closed_by_site(name, capacity)


_CLOSED = {
    "draining": (RefusalCode.DRAINING, "draining by the site"),
    "paused": (RefusalCode.PAUSED, "paused by the site"),
    "blackout": (RefusalCode.BLACKOUT, "closed by the site"),
}


def _closed_by_site(name: str, capacity: Capacity) -> Refusal | None:
    if capacity.state not in _CLOSED:
        return None
    code, text = _CLOSED[capacity.state]
    why = f"{text}: {capacity.state_reason}" if capacity.state_reason else text
    return Refusal(code, name, available=why)


def read_tenants(projection: Projection) -> dict[str, TenantPolicy]:
    """Quotas and defaults of all tenants that have a record."""
    found: dict[str, TenantPolicy] = {}
    for kv in projection.under(keys.TENANTS):
        try:
            r = pb.TenantRecord.FromString(kv.value)
        except DecodeError:  # a limit that cannot be read is not the absence of one
            name = keys.last_part(kv.key)
            found[name] = TenantPolicy(name=name, quota_accelerators=0)
            continue
        found[r.tenant] = TenantPolicy(
            name=r.tenant,
            weight=r.weight or 1,
            quota_accelerators=None if r.quota_accelerators < 0 else r.quota_accelerators,
            cohort=r.cohort,
            borrow_accelerators=None
            if r.borrow_accelerators < 0 or not r.cohort
            else r.borrow_accelerators,
            cluster_quota=dict(r.cluster_quota),
            default_max_runtime_s=r.default_max_runtime_s or 24 * 3600,
            max_runtime_s=r.max_runtime_s or 31 * 24 * 3600,
        )
    return found
