"""The fleet: clusters, prices and round trips, each number with its age."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from aiohttp import web

from broker.api.problems import Problem, field_problem, not_found
from broker.api.routes import Call, answer
from broker.api.services import ApiSettings
from broker.api.site_rules import site_rules
from broker.api.views import usd, utc
from broker.control.data_ways import RATE_AGE_MAX_MS
from broker.model.fleet import (
    Capacity,
    ClusterState,
    ClusterView,
    DataRate,
    NodeGroup,
    PoolCapacity,
    PoolPrice,
)
from broker.sense.duplicates import PoolKey, duplicates
from broker.state.cluster_records import change_cluster
from federation.certificates import ca_hash
from federation.ids import InvalidName, parse_cluster, parse_region
from federation.refusals import Refusal
from federation.units import InvalidQuantity, parse_duration_s, parse_rfc3339_ms
from federation.wire import records as pb

DRAIN_DEFAULT_MS = 24 * 3_600_000
MICRO_PER_MS = 1_000


# Clusters -----------------------------------------------------------------------------------------


async def clusters(call: Call) -> web.Response:
    """GET /v1/clusters."""
    running = call.api.services.projection.attempt_counts()
    fleet = call.api.services.control.fleet()
    doubled = duplicates(fleet)
    views = [
        cluster_view(view, running.get(name, 0), call.now_ms, doubled)
        for name, view in sorted(fleet.clusters.items())
    ]
    return answer(200, {"clusters": views})


async def cluster(call: Call) -> web.Response:
    """GET /v1/clusters/{name}."""
    name = call.params["name"]
    fleet = call.api.services.control.fleet()
    view = next((v for n, v in fleet.clusters.items() if n == name), None)
    if view is None:
        raise not_found("cluster", name)
    running = call.api.services.projection.attempt_counts().get(name, 0)
    return answer(200, cluster_view(view, running, call.now_ms, duplicates(fleet)))


def cluster_view(
    view: ClusterView, running: int, now_ms: int, doubled: Mapping[PoolKey, Refusal]
) -> dict[str, Any]:
    """A cluster as the API shows it; ages in seconds, None where nothing was ever reported."""
    identity, capacity = view.identity, view.capacity
    return {
        "name": identity.name,
        "region": identity.region,
        "state": identity.state.value,
        "site_state": capacity.state if capacity else None,
        "site_reason": capacity.state_reason if capacity else "",
        "site_rules": site_rules(capacity),
        "scheduler": identity.scheduler,
        "isolation": identity.isolation,
        "capabilities": list(identity.capabilities),
        "connected": view.connected,
        "silent_since_at": utc(view.silent_since_ms),
        "capacity_age_s": _age_s(capacity.received_ms if capacity else 0, now_ms),
        "certificate_expires_at": utc(identity.certificate_expires_ms),
        "drain_deadline_at": utc(identity.drain_deadline_ms),
        "handshake_ms": view.handshake_ms,
        "cold_handshake_ms": view.cold_handshake_ms,
        "cache": _cache(view, now_ms),
        "pools": _pools(view, capacity, doubled, now_ms),
        "local_load": asdict(capacity.local_load) if capacity else None,
        "running": running,
        "version": identity.version,
    }


def _age_s(then_ms: int, now_ms: int) -> float | None:
    return max(now_ms - then_ms, 0) / 1000 if then_ms else None


def _cache(view: ClusterView, now_ms: int) -> dict[str, Any] | None:
    cache = view.cache
    if cache is None:
        return None
    return {
        "items": cache.total_items,
        "bytes": cache.total_bytes,
        "limit_bytes": cache.limit_bytes,
        "fetch_bytes_per_s": cache.fetch_bytes_per_s or None,
        "age_s": _age_s(cache.received_ms, now_ms),
    }


def _pools(
    view: ClusterView,
    capacity: Capacity | None,
    doubled: Mapping[PoolKey, Refusal],
    now_ms: int,
) -> list[dict[str, Any]]:
    pools = {pool.pool: pool for pool in capacity.pools} if capacity else {}
    shown = []
    for name in sorted({*pools, *view.prices}):
        body = _pool(name, pools.get(name), view.prices.get(name), now_ms)
        twice = doubled.get((view.identity.name, name))
        shown.append(body | {"free": 0, "note": twice.text} if twice else body | {"note": ""})
    return shown


def _pool(
    name: str, pool: PoolCapacity | None, price: PoolPrice | None, now_ms: int
) -> dict[str, Any]:
    groups = pool.groups if pool else ()
    return {
        "pool": name,
        "accelerator": groups[0].accelerator if groups else None,
        "simulated": pool.simulated if pool else None,
        "nodes": sum(g.count for g in groups),
        "total": sum(g.count * g.total for g in groups) if pool else None,
        "free": sum(g.count * g.free for g in groups) if pool else None,
        "cpus": sum(g.count * g.cpus_milli for g in groups) / 1000,
        "free_cpus": sum(g.count * g.free_cpus_milli for g in groups) / 1000,
        "memory_bytes": sum(g.count * g.memory_bytes for g in groups),
        "free_memory_bytes": sum(g.count * g.free_memory_bytes for g in groups),
        "extras": [
            {"name": name, "total": total, "free": free}
            for name, (total, free) in (sorted(pool.extras.items()) if pool else ())
        ],
        "domain": groups[0].domain if len({g.domain for g in groups}) == 1 else "",
        "features": _features(groups),
        "price_usd_per_accelerator_hour": usd(price.marginal_at(now_ms)) if price else None,
        "price_kind": price.kind if price else None,
        "price_source": price.source if price else None,
        "price_as_of_at": utc(price.as_of_ms) if price else None,
        "queue": asdict(pool.queue) if pool and pool.queue else None,
    }


def _features(groups: Sequence[NodeGroup]) -> list[dict[str, Any]]:
    """The words a site has for its nodes, with how many nodes have each."""
    counts: Counter[str] = Counter()
    for group in groups:
        counts.update(dict.fromkeys(group.features, group.count))
    return [{"name": name, "nodes": counts[name]} for name in sorted(counts)]


async def invite(call: Call) -> web.Response:
    """POST /v1/clusters/invite."""
    body = call.body
    for path, parse in (("name", parse_cluster), ("region", parse_region)):
        try:
            parse(getattr(body, path))
        except InvalidName as error:
            raise field_problem(
                422, "bad_body", path, error.rule, "choose another", getattr(body, path)
            ) from None
    services = call.api.services
    ttl_s = duration_s("ttl", body.ttl)
    made_ms = call.now_ms
    token = await services.enrolment.invite(body.name, body.region, ttl_s, call.viewer.subject)
    command = (
        f"tradewind-agent join {services.settings.public_url} --token {token} "
        f"--ca-hash {ca_hash(services.keyring.ca_bundle)}"
    )
    view = {"token": token, "command": command, "expires_at": utc(made_ms + ttl_s * 1000)}
    return answer(201, view)


async def drain(call: Call) -> web.Response:
    """POST /v1/clusters/{name}/drain."""
    deadline_ms = call.now_ms + DRAIN_DEFAULT_MS
    if call.body.deadline is not None:
        deadline_ms = instant_ms("deadline", call.body.deadline)

    def change(record: pb.ClusterRecord) -> None:
        if record.state not in (ClusterState.JOINED, ClusterState.DRAINING):
            raise Problem(409, "not_joined", f"cluster {record.cluster} is {record.state}")
        record.state = ClusterState.DRAINING.value
        record.drain_deadline_ms = deadline_ms

    name = call.params["name"]
    if await change_cluster(call.api.services.store, name, change) is None:
        raise not_found("cluster", name)
    return answer(202, {"name": name, "state": "draining", "deadline_at": utc(deadline_ms)})


async def remove(call: Call) -> web.Response:
    """POST /v1/clusters/{name}/remove: its certificates are void from now on."""
    name, services = call.params["name"], call.api.services

    def change(record: pb.ClusterRecord) -> None:
        record.state = ClusterState.REMOVED.value

    if await change_cluster(services.store, name, change) is None:
        raise not_found("cluster", name)
    await services.enrolment.revoke(name)
    return answer(202, {"name": name, "state": "removed", "deadline_at": None})


# Prices and round trips ---------------------------------------------------------------------------


async def prices(call: Call) -> web.Response:
    """GET /v1/prices."""
    fleet = call.api.services.control.fleet()
    rows = [
        _price_row(view, price, call.now_ms, call.api.services.settings)
        for _, view in sorted(fleet.clusters.items())
        for _, price in sorted(view.prices.items())
    ]
    return answer(200, {"prices": rows})


def _price_row(
    view: ClusterView, price: PoolPrice, now_ms: int, settings: ApiSettings
) -> dict[str, Any]:
    pools = {p.pool: p for p in view.capacity.pools} if view.capacity else {}
    groups = pools[price.pool].groups if price.pool in pools else ()
    age_s = _age_s(price.as_of_ms, now_ms)
    then = price.change_after(now_ms)
    flagged = None
    if price.valid_until_ms and now_ms >= price.valid_until_ms:
        flagged = "no longer valid"
    elif age_s is None or age_s > settings.price_age_max_s:
        flagged = "old"
    return {
        "cluster": view.identity.name,
        "region": view.identity.region,
        "pool": price.pool,
        "accelerator": groups[0].accelerator if groups else None,
        "kind": price.kind,
        "marginal_usd": usd(price.marginal_at(now_ms)),
        "next_usd": usd(then[1]) if then else None,
        "next_at": utc(then[0]) if then else None,
        "preemptions_per_hour": price.preemptions_per_h or None,
        "full_usd": usd(price.full_micro_usd),
        "as_of_at": utc(price.as_of_ms),
        "valid_until_at": utc(price.valid_until_ms),
        "age_s": age_s,
        "source": price.source,
        "flagged": flagged,
    }


async def latency(call: Call) -> web.Response:
    """GET /v1/latency: measured where measured, else typed by the operator, else unknown."""
    fleet = call.api.services.control.fleet()
    typed = call.api.services.settings.typed_round_trips
    measured: dict[tuple[str, str], tuple[int, int]] = {}
    for view in fleet.clusters.values():
        for trip in view.round_trips:
            pair = (str(view.identity.region), str(trip.target_region))
            known = measured.get(pair)
            if known is None or _better(trip.rtt_us, known[0]):
                measured[pair] = (trip.rtt_us, trip.measured_ms)
    regions = sorted({*fleet.regions, *(r for pair in (*measured, *typed) for r in pair)})
    rows = []
    for start in regions:
        for end in regions:
            if start == end and (start, end) not in measured:
                continue
            rows.append(_trip_row(start, end, measured.get((start, end)), typed))
    rates = [_rate_row(fleet.clusters[n], r, call) for n in sorted(fleet.clusters)
             for r in fleet.clusters[n].data_rates]  # fmt: skip
    return answer(200, {"regions": regions, "round_trips": rows, "data_rates": rates})


def _rate_row(view: ClusterView, rate: DataRate, call: Call) -> dict[str, Any]:
    age_ms = call.now_ms - rate.measured_ms
    failed, old = rate.bytes_per_s < 0, age_ms > RATE_AGE_MAX_MS
    return {
        "from_region": rate.source_region,
        "to_region": view.identity.region,
        "cluster": view.identity.name,
        "target": rate.target,
        "gbps": None if failed else round(rate.bytes_per_s * 8 / 1e9, 6),
        "at_least": rate.at_least,
        "readings": rate.readings,
        "measured_at": utc(rate.measured_ms),
        "age_s": max(age_ms // 1000, 0),
        "flagged": "nothing came" if failed else "old" if old else None,
    }


def _better(rtt_us: int, known_us: int) -> bool:
    """The shortest of what several clusters of a region measured; unreachable last."""
    return known_us < 0 or 0 <= rtt_us < known_us


def _trip_row(start: str, end: str, measured: tuple[int, int] | None, typed: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"from": start, "to": end, "note": None}
    if measured is not None and measured[0] >= 0:
        return row | {
            "rtt_ms": measured[0] / MICRO_PER_MS,
            "measured_at": utc(measured[1]),
            "source": "measured",
        }
    if (start, end) in typed:
        trip = typed[start, end]
        return row | {
            "rtt_ms": trip.rtt_ms,
            "measured_at": utc(trip.as_of_ms),
            "source": "typed",
            "note": trip.source,
        }
    note = "unreachable when measured" if measured is not None else None
    at = utc(measured[1]) if measured is not None else None
    return row | {"rtt_ms": None, "measured_at": at, "source": "unknown", "note": note}


# Quantities in requests ---------------------------------------------------------------------------


def duration_s(path: str, text: str) -> int:
    """Seconds of a duration; Problem 422 naming the path."""
    try:
        seconds = parse_duration_s(text)
    except InvalidQuantity as error:
        raise field_problem(422, "bad_body", path, error.rule, error.remedy, text) from None
    if seconds < 1:
        raise field_problem(422, "bad_body", path, "too short", "write 1s or more", text)
    return seconds


def instant_ms(path: str, text: str, status: int = 422) -> int:
    """UTC epoch milliseconds of an RFC 3339 time; Problem naming the path."""
    try:
        return parse_rfc3339_ms(text)
    except InvalidQuantity as error:
        code = "bad_query" if status == 400 else "bad_body"
        raise field_problem(status, code, path, error.rule, error.remedy, text) from None
