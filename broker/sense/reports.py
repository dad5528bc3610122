"""Reports as they arrive: bounded, validated, turned into values. Pure.

A number that is out of range is refused with its reason, never repaired; unknown is unknown.
"""

from __future__ import annotations

import re

from broker.model.fleet import (
    Cache,
    Capacity,
    DataRate,
    LocalLoad,
    NodeGroup,
    PoolCapacity,
    PoolPrice,
    PriceStep,
    RoundTrip,
)
from federation.accelerators import InvalidAccelerator, identify
from federation.features import FEATURE
from federation.ids import Region
from federation.local_queue import LocalQueue
from federation.site_limits import NO_LIMITS, ClosedWindow, NameRule, SiteLimits
from federation.wire import records as pb

REPORT_BYTES_MAX = 256 * 1024
PRICE_MAX_MICRO_USD = 1_000_000_000
"""1,000 USD an accelerator hour: more is a unit error (peers saw both B200 at $0.01 and at $0)."""
NODES_MAX = 100_000
START_MAX_MS = 10 * 365 * 86_400_000
"""Ten years: a scheduler that expects a start later than that knows nothing."""
STEPS_MAX = 400
PREEMPTIONS_PER_H_MAX = 60
EXTRAS_MAX, EXTRA_MAX = 64, 1_000_000_000
FEATURES_MAX = 64
CACHED_MAX = 2_000
RATE_MAX_BYTES_PER_S = 10**12
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ReportRefused(ValueError):
    """A report that cannot be right; the text names the field and the value."""


def capacity_from(report: pb.CapacityReport, received_ms: int) -> Capacity:
    """A capacity report as a value. Raises `ReportRefused`."""
    return Capacity(
        received_ms=received_ms,
        as_of_ms=report.as_of_ms,
        generation=report.generation,
        reflects_dispatch_seq=report.reflects_dispatch_seq,
        reflects_event_seq=report.reflects_event_seq,
        pools=tuple(_pool(pool) for pool in report.pools),
        locally_pending=report.locally_pending,
        start_p50_ms=report.start_p50_ms,
        start_p90_ms=report.start_p90_ms,
        state=report.state or "open",
        state_reason=report.state_reason,
        limits=_limits(report.limits),
        windows=tuple(_window(window) for window in report.windows),
        local_load=LocalLoad(
            report.local_load.running,
            report.local_load.waiting,
            report.local_load.accelerators,
        ),
        max_queued=report.max_queued,
    )


def _window(window: pb.ClosedWindow) -> ClosedWindow:
    if window.until_ms <= window.from_ms:
        raise ReportRefused(f"a window that ends before it begins: {window.reason[:80]!r}")
    return ClosedWindow(window.from_ms, window.until_ms, window.reason)


def _limits(limits: pb.SiteLimits) -> SiteLimits:
    names = {
        name: NameRule(tuple(rule.allow), tuple(rule.deny))
        for name in ("tenants", "users", "images", "commands", "pools")
        if (rule := getattr(limits, name)).ByteSize()
    }
    stated = limits.guest_permille or limits.nothing_for_guests
    found = SiteLimits(
        **names,
        max_pending=limits.max_pending,
        max_walltime_s=limits.max_walltime_s,
        guest_permille=min(limits.guest_permille, 1_000) if stated else 1_000,
        banned=frozenset(limits.banned),
    )
    return NO_LIMITS if found == NO_LIMITS else found


def _pool(pool: pb.PoolCapacity) -> PoolCapacity:
    return PoolCapacity(
        pool=pool.pool,
        simulated=pool.simulated,
        groups=tuple(_group(pool.pool, group) for group in pool.groups),
        cards=tuple(pool.cards),
        queue=_queue(pool) if pool.HasField("queue") else None,
        extras=_extras(pool),
    )


def _extras(pool: pb.PoolCapacity) -> dict[str, tuple[int, int]]:
    if len(pool.extras) > EXTRAS_MAX:
        raise ReportRefused(f"pool {pool.pool}: {len(pool.extras)} extras, at most {EXTRAS_MAX}")
    for extra in pool.extras:
        if not extra.name or extra.free > extra.total or extra.total > EXTRA_MAX:
            raise ReportRefused(
                f"pool {pool.pool}: {extra.free} {extra.name[:80]!r} free of {extra.total}, "
                f"at most {EXTRA_MAX}"
            )
    return {extra.name: (extra.total, extra.free) for extra in pool.extras}


def _queue(pool: pb.PoolCapacity) -> LocalQueue:
    said = pool.queue
    p50_ms = said.start_p50_ms if said.HasField("start_p50_ms") else None
    p90_ms = said.start_p90_ms if said.HasField("start_p90_ms") else p50_ms
    for name, wait_ms in (("start_p50_ms", p50_ms), ("start_p90_ms", p90_ms)):
        if wait_ms is not None and not 0 <= wait_ms <= START_MAX_MS:
            raise ReportRefused(
                f"pool {pool.pool}: queue.{name} {wait_ms}, 0 to {START_MAX_MS} allowed"
            )
    return LocalQueue(
        said.waiting, said.waiting_accelerators, p50_ms, p90_ms, said.pending_max
    )


def _group(pool: str, g: pb.NodeGroup) -> NodeGroup:
    if not 1 <= g.count <= NODES_MAX:
        raise ReportRefused(f"pool {pool}: {g.count} nodes in a group, 1 to {NODES_MAX} allowed")
    for name, free, total in (
        ("accelerators", g.free, g.total),
        ("cpus_milli", g.free_cpus_milli, g.cpus_milli),
        ("memory_bytes", g.free_memory_bytes, g.memory_bytes),
    ):
        if free > total:
            raise ReportRefused(f"pool {pool}: {free} {name} free of {total}")
    return NodeGroup(
        count=g.count,
        accelerator=_canonical(pool, g.accelerator),
        total=g.total,
        free=g.free,
        cpus_milli=g.cpus_milli,
        free_cpus_milli=g.free_cpus_milli,
        memory_bytes=g.memory_bytes,
        free_memory_bytes=g.free_memory_bytes,
        domain=g.domain,
        features=_features(pool, g),
    )


def _features(pool: str, g: pb.NodeGroup) -> tuple[str, ...]:
    if len(g.features) > FEATURES_MAX:
        raise ReportRefused(f"pool {pool}: {len(g.features)} features, at most {FEATURES_MAX}")
    for name in g.features:
        if not re.fullmatch(FEATURE, name):
            raise ReportRefused(f"pool {pool}: {name[:80]!r} is no feature of nodes")
    return tuple(sorted(set(g.features)))


def _canonical(pool: str, reported: str) -> str:
    try:
        return identify(reported).name
    except InvalidAccelerator as error:
        raise ReportRefused(f"pool {pool}: {error}") from error


def prices_from(report: pb.PriceReport) -> tuple[tuple[PoolPrice, ...], tuple[str, ...]]:
    """Prices that can be right, and the reasons why others were refused."""
    good: list[PoolPrice] = []
    refused: list[str] = []
    for p in report.pools:
        floor = 0 if p.kind == "owned" else 1
        if p.kind not in ("owned", "on-demand", "spot"):
            refused.append(f"pool {p.pool}: kind {p.kind!r} is not owned, on-demand or spot")
        elif not floor <= p.marginal_micro_usd <= PRICE_MAX_MICRO_USD:
            refused.append(
                f"pool {p.pool}: {p.marginal_micro_usd / 1e6:g} USD per accelerator hour is out "
                f"of range for kind {p.kind}"
            )
        elif fault := _steps_fault(p, floor):
            refused.append(f"pool {p.pool}: {fault}")
        elif not 0 <= p.preemptions_per_h <= PREEMPTIONS_PER_H_MAX:
            refused.append(
                f"pool {p.pool}: {p.preemptions_per_h:g} preemptions an hour are not between 0 and "
                f"{PREEMPTIONS_PER_H_MAX}"
            )
        elif not p.source or p.as_of_ms <= 0:
            refused.append(f"pool {p.pool}: a price needs its source and its date")
        else:
            good.append(
                PoolPrice(
                    p.pool,
                    p.kind,
                    p.marginal_micro_usd,
                    p.full_micro_usd or p.marginal_micro_usd,
                    p.as_of_ms,
                    p.source,
                    p.valid_until_ms,
                    tuple(
                        PriceStep(s.from_ms, s.until_ms, s.marginal_micro_usd) for s in p.steps
                    ),
                    p.preemptions_per_h,
                )
            )
    return tuple(good), tuple(refused)


def _steps_fault(price: pb.PoolPrice, floor: int) -> str:
    """What is wrong with the prices by the hour; empty where nothing is."""
    if len(price.steps) > STEPS_MAX:
        return f"{len(price.steps)} prices by the hour, at most {STEPS_MAX}"
    before_ms = 0
    for step in price.steps:
        if not before_ms <= step.from_ms < step.until_ms:
            return "its prices by the hour are not in order, or one lies over another"
        if not floor <= step.marginal_micro_usd <= PRICE_MAX_MICRO_USD:
            usd = step.marginal_micro_usd / 1e6
            return f"{usd:g} USD per accelerator hour in some hours is out of range"
        before_ms = step.until_ms
    return ""


def cache_from(report: pb.CacheReport, received_ms: int) -> Cache:
    """What a site has in its cache. Raises `ReportRefused`."""
    if len(report.items) > CACHED_MAX:
        raise ReportRefused(f"{len(report.items)} items named, at most {CACHED_MAX}")
    blobs: dict[str, int] = {}
    for item in report.items:
        if not _SHA256.fullmatch(item.sha256):
            raise ReportRefused(f"item {item.sha256[:80]!r} is not named by a sha256")
        if item.kind in ("", "blob"):
            blobs[item.sha256] = item.bytes
    return Cache(
        received_ms=received_ms,
        blobs=blobs,
        total_items=report.total_items,
        total_bytes=report.total_bytes,
        limit_bytes=report.limit_bytes,
        fetch_bytes_per_s=report.fetch_bytes_per_s,
    )


def round_trips_from(report: pb.LatencyReport) -> tuple[RoundTrip, ...]:
    """Measured connect times, one per target."""
    return tuple(
        RoundTrip(Region(r.target_region), r.target, r.rtt_us, r.measured_ms)
        for r in report.round_trips
    )


def data_rates_from(report: pb.LatencyReport, received_ms: int) -> tuple[DataRate, ...]:
    """How fast data came, one per source; what cannot be right is left out. None is younger than
    its report (`received_ms`, 0 = not known), whatever the clock of the site says."""
    return tuple(
        DataRate(
            Region(r.source_region),
            r.target,
            r.bytes_per_s,
            r.at_least,
            r.readings,
            min(r.measured_ms, received_ms or r.measured_ms),
        )
        for r in report.data_rates
        if r.source_region and (r.bytes_per_s == -1 or 0 < r.bytes_per_s <= RATE_MAX_BYTES_PER_S)
    )
