"""One plan as a column beside another: placed by tier, cost, what waits, who starts where. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from broker.control.forecast import Expected
from broker.decide.later_starts import pool_of
from broker.decide.objective import cost_terms
from broker.decide.terms import Geography
from broker.model.plan import Plan
from broker.model.problem import Problem
from federation.units import format_utc


def side(
    problem: Problem,
    plan: Plan,
    later: Sequence[Expected] = (),
    shown: Collection[str] | None = None,
) -> dict[str, Any]:
    """The figures of a plan, as the API shows them. Copies, tiers and starts count everybody;
    `cost_usd` that of the jobs `shown` (None: of all, with fragmentation). `later`: when jobs that
    wait for room are expected to start."""
    jobs = {job.id: job for job in problem.jobs}
    pools = {pool.name: pool for pool in problem.pools}
    where = Geography(problem)
    placed: Counter[int] = Counter({job.priority: 0 for job in problem.jobs})
    copies: Counter[str] = Counter()
    start_s: defaultdict[str, float] = defaultdict(float)
    put_off: Counter[tuple[str, float]] = Counter()
    cost_usd = 0.0
    for item in plan.assignments:
        job, pool = jobs[item.job], pool_of(pools[item.pool], item)
        placed[job.priority] += item.count * job.gang_accelerators
        if item.start_h:
            put_off[pool.cluster, item.start_h] += item.count
        else:
            copies[pool.cluster] += item.count
            start_s[pool.cluster] += item.count * where.start_s(job, pool)
        if shown is None or item.job in shown:
            cost_usd += item.count * cost_terms(where, job, pool).total_usd
    return {
        "placed": {str(tier): placed[tier] for tier in sorted(placed, reverse=True)},
        "copies": sum(copies.values()) + sum(put_off.values()),
        "waiting": sum(item.count for item in plan.unplaced),
        "cost_usd": plan.cost_usd if shown is None else cost_usd,
        "starts": [
            {"cluster": name, "copies": n, "start_s": round(start_s[name] / n, 3)}
            for name, n in sorted(copies.items())
        ],
        "put_off": [
            {"cluster": name, "copies": n, "start_h": start_h}
            for (name, start_h), n in sorted(put_off.items())
        ],
        "later": _later(later),
        "status": plan.status.value,
        "gap": plan.gap,
    }


def _later(expected: Sequence[Expected]) -> list[dict[str, Any]]:
    by_cluster: dict[str, list[int]] = {}
    for item in expected:
        by_cluster.setdefault(item.cluster, []).append(item.start_ms)
    return [
        {
            "cluster": name,
            "jobs": len(starts),
            "first_at": format_utc(min(starts)),
            "last_at": format_utc(max(starts)),
        }
        for name, starts in sorted(by_cluster.items())
    ]


def comparison(
    today: Mapping[str, Any], whatif: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Both columns and who moves."""
    return {
        "today": today,
        "whatif": whatif,
        "difference_usd": whatif["cost_usd"] - today["cost_usd"],
        "moved": len(rows),
        "moves": list(rows),
    }
