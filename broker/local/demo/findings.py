"""What the demonstration shows, computed from what the API answered. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, quantiles
from typing import Any

from broker.local.demo.baselines import (
    Replayed,
    ReplayJob,
    ReplayPool,
    cheapest_first,
    home_only,
    replay,
)
from broker.local.demo.workload import HOME_LABEL, Planned
from federation.units import parse_rfc3339_ms

Document = Mapping[str, Any]
CPU = "CPU"


def at_s(value: object) -> float | None:
    """Seconds since 1970 of the API's text; None where there is none."""
    return parse_rfc3339_ms(value) / 1000 if isinstance(value, str) and value else None


def attempts_of(jobs: Iterable[Document]) -> list[Document]:
    """Every attempt of these jobs that started."""
    return [a for job in jobs for a in job.get("attempts") or () if a.get("started_at")]


def held_accelerator_s(attempt: Document, until_s: float) -> float:
    """Accelerators of an attempt times the seconds it held them."""
    started_s = at_s(attempt.get("started_at"))
    if started_s is None:
        return 0.0
    ended_s = at_s(attempt.get("ended_at")) or until_s
    return float(attempt.get("accelerators") or 0) * max(ended_s - started_s, 0.0)


def utilisation(jobs: Sequence[Document], clusters: Sequence[Document]) -> list[dict[str, Any]]:
    """Per pool, how much of it was held from the first start to the last end."""
    started = [s for a in attempts_of(jobs) if (s := at_s(a.get("started_at"))) is not None]
    ended = [s for a in attempts_of(jobs) if (s := at_s(a.get("ended_at"))) is not None]
    if not started or not ended:
        return []
    span_s = max(max(ended) - min(started), 1e-9)
    held: dict[tuple[str, str], float] = {}
    for attempt in attempts_of(jobs):
        place = str(attempt["cluster"]), str(attempt["pool"])
        held[place] = held.get(place, 0.0) + held_accelerator_s(attempt, max(ended))
    return [
        {
            "region": cluster.get("region"),
            "cluster": cluster.get("name"),
            "pool": pool.get("pool"),
            "accelerator": pool.get("accelerator"),
            "simulated": pool.get("simulated"),
            "total": pool.get("total"),
            "held_accelerator_s": round(used := held.get(_place(cluster, pool), 0.0), 3),
            "utilisation": round(used / (span_s * max(float(pool.get("total") or 0), 1.0)), 4),
            "span_s": round(span_s, 3),
        }
        for cluster in clusters
        for pool in cluster.get("pools") or ()
    ]


def _place(cluster: Document, pool: Document) -> tuple[str, str]:
    return str(cluster.get("name")), str(pool.get("pool"))


def delays(jobs: Sequence[Document], clusters: Sequence[Document]) -> list[dict[str, Any]]:
    """Per cluster, how long its handshakes and the steps from decision to start took, measured.

    `new_session_ms`: TCP, TLS, HTTP/2 and our own greeting; `kept_session_ms`: a message and its
    answer once a session stands.
    """
    by_cluster: dict[str, list[Document]] = {str(c["name"]): [] for c in clusters}
    for attempt in attempts_of(jobs):
        by_cluster.setdefault(str(attempt["cluster"]), []).append(attempt)
    handshakes = {
        str(cluster["name"]): {
            "new_session_ms": cluster.get("cold_handshake_ms"),
            "kept_session_ms": cluster.get("handshake_ms"),
        }
        for cluster in clusters
    }
    return [
        {"cluster": name, **handshakes.get(name, {}), **_delays_of(found)}
        for name, found in sorted(by_cluster.items())
    ]


def _delays_of(attempts: Sequence[Document]) -> dict[str, Any]:
    starts = [
        (started - placed) * 1000
        for a in attempts
        if (started := at_s(a.get("started_at"))) and (placed := at_s(a.get("placed_at")))
    ]
    answer: dict[str, Any] = {"attempts": len(attempts)}
    for name in ("prepare_ms", "launch_ms"):
        middle = _p50([float(a.get(name) or 0) for a in attempts])
        answer[f"{name.removesuffix('_ms')}_p50_ms"] = middle
    answer["decision_to_start_p50_ms"] = _p50(starts)
    answer["decision_to_start_max_ms"] = round(max(starts, default=0.0), 1)
    return answer


def _p50(values: Sequence[float]) -> float:
    if len(values) < 2:
        return round(values[0], 1) if values else 0.0
    return round(quantiles(values, n=2)[0], 1)


# Against simpler rules ----------------------------------------------------------------------------


def comparison(
    planned: Sequence[Planned], jobs: Sequence[Document], clusters: Sequence[Document]
) -> dict[str, Any]:
    """What was paid and waited, and what two simpler rules would have on the same jobs.

    Only jobs that ran are compared. `paid_usd` of ours is held accelerators times their price,
    which is also how the rules are charged.
    """
    pools = replay_pools(clusters)
    ran = replay_jobs(planned, jobs)
    cheapest, home = replay(ran, pools, cheapest_first), replay(ran, pools, home_only)
    return {
        "tradewind": _ours(jobs, len({j.name for j in ran})),
        "cheapest_price_first": _shown(cheapest, jobs),
        "home_region_only": _shown(home, jobs),
        "note": (
            "the two rules are replayed with the measured runtimes, without any overhead and "
            "without the region that died"
        ),
    }


def _shown(result: Replayed, jobs: Sequence[Document]) -> dict[str, Any]:
    rounded = {k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(result).items()}
    ours_usd = sum(paid_usd(job) for job in jobs if job.get("name") not in result.never)
    return {
        **rounded,
        "never": list(result.never),
        "tradewind_paid_for_these_usd": round(ours_usd, 6),
    }


def _ours(jobs: Sequence[Document], ran: int) -> dict[str, Any]:
    done = [job for job in jobs if at_s(job.get("started_at")) is not None]
    first_s = min((at_s(job.get("created_at")) or 0.0 for job in jobs), default=0.0)
    waits = [(at_s(j["started_at"]) or 0.0) - (at_s(j["created_at"]) or 0.0) for j in done]
    ends = [s for job in done if (s := at_s(job.get("ended_at"))) is not None]
    return {
        "paid_usd": round(sum(paid_usd(job) for job in done), 6),
        "jobs_ran": ran,
        "mean_wait_s": round(fmean(waits), 3) if waits else 0.0,
        "longest_wait_s": round(max(waits, default=0.0), 3),
        "end_s": round(max(ends, default=first_s) - first_s, 3),
    }


def paid_usd(job: Document) -> float:
    """What a job cost: its held accelerators at their price when they were placed."""
    return sum(
        held_accelerator_s(a, at_s(a.get("started_at")) or 0.0)
        / 3600
        * float(a.get("price_usd_per_accelerator_hour") or 0.0)
        for a in attempts_of([job])
    )


def replay_pools(clusters: Sequence[Document]) -> list[ReplayPool]:
    """The pools as they are when nothing runs."""
    return [
        ReplayPool(
            name=f"{cluster['name']}/{pool['pool']}",
            region=str(cluster["region"]),
            accelerator=str(pool["accelerator"]),
            nodes=int(pool["nodes"]),
            per_node=int(pool["total"]) // max(int(pool["nodes"]), 1),
            usd_per_hour=float(pool["price_usd_per_accelerator_hour"] or 0.0),
            spot=pool.get("price_kind") == "spot",
        )
        for cluster in clusters
        for pool in cluster["pools"]
    ]


def replay_jobs(planned: Sequence[Planned], jobs: Sequence[Document]) -> list[ReplayJob]:
    """The jobs that ran, with their measured runtimes, times counted from the first submission."""
    specs = {plan.name: plan.spec for plan in planned}
    first_s = min((at_s(job.get("created_at")) or 0.0 for job in jobs), default=0.0)
    return [
        _replay_job(job, specs[str(job["name"])], first_s)
        for job in jobs
        if job.get("name") in specs and attempts_of([job])
    ]


def _replay_job(job: Document, spec: Mapping[str, Any], first_s: float) -> ReplayJob:
    resources, placement = spec.get("resources", {}), spec.get("placement", {})
    asked = resources.get("accelerators")
    models, per_replica = _models(asked) if asked else ((CPU,), int(resources.get("cpus", 1)))
    replicas = int(resources.get("replicas", 1))
    array = job.get("array")
    copies = int(array["tasks"]) if array else 1
    held = sum(held_accelerator_s(a, 0.0) for a in attempts_of([job]))
    return ReplayJob(
        name=str(job["name"]),
        arrived_s=(at_s(job.get("created_at")) or first_s) - first_s,
        run_s=held / (per_replica * replicas * copies),
        models=models,
        home=str(spec.get("labels", {}).get(HOME_LABEL, "")),
        per_replica=per_replica,
        replicas=replicas,
        copies=copies,
        at_once=_at_once(spec),
        priority=int(job.get("priority") or 0),
        regions=tuple(placement.get("regions", ())),
        spot=bool(placement.get("spot")),
    )


def _at_once(spec: Mapping[str, Any]) -> int | None:
    _, percent, limit = str(spec.get("array", "")).partition("%")
    return int(limit) if percent else None


def _models(asked: str | Sequence[str]) -> tuple[tuple[str, ...], int]:
    each = [asked] if isinstance(asked, str) else list(asked)
    pairs = [text.partition(":") for text in each]
    return tuple(model for model, _, _ in pairs), int(pairs[0][2] or 1)
