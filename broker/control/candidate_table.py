"""The candidate table of a job, the reasons why it waits, and what would start it, as the API shows
them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from broker.control.build_problem import World
from broker.control.change_words import advice_words, reason_words
from broker.control.cold_start import blobs_of
from broker.control.inputs import ways_taken
from broker.control.room import Room, waits_for_room
from broker.decide.changes import Advice
from broker.decide.explain import Candidate, ClusterReason, Explanation, candidates
from broker.decide.terms import Geography
from broker.model.fleet import Fleet
from broker.model.plan import Plan
from broker.model.problem import Job, Problem
from broker.sense.start_delay import StartEstimate
from federation.ids import Cluster
from federation.jobs import JobSpec
from federation.units import format_utc

Rooms = Mapping[str, Room]


def candidate_rows(
    problem: Problem, job_id: str, plan: Plan, world: World, spec: JobSpec | None
) -> list[dict[str, Any]]:
    """The candidate table of one job of the problem: every pool, cheapest feasible first, CHOSEN
    marked. `spec`: its blobs and inputs, None where it starts with none."""
    job = next(job for job in problem.jobs if job.id == job_id)
    return job_rows(problem, job, plan, world, (spec, {}))


def job_rows(
    problem: Problem, job: Job, plan: Plan, world: World, more: tuple[JobSpec | None, Rooms]
) -> list[dict[str, Any]]:
    """The same for a job that need not be in the problem. `more`: its spec, and when there will
    be room for it, by pool."""
    spec, rooms = more
    blobs = blobs_of(spec) if spec else {}
    starts = {cluster.name: world.start_at(cluster.name, blobs) for cluster in problem.clusters}
    comes = _transfers(problem, job, spec, world)
    return [
        _row(candidate, world, starts[candidate.cluster], rooms.get(candidate.pool))
        | comes.get(candidate.pool, {})
        for candidate in candidates(problem, job, plan)
    ]


def _transfers(
    problem: Problem, job: Job, spec: JobSpec | None, world: World
) -> dict[str, dict[str, Any]]:
    """By pool the seconds until the inputs of a job are there, by which ways they come, and how
    the speed of each is known; empty where it has none."""
    if not job.input_gb or spec is None:
        return {}
    where, ways = Geography(problem), world.ways
    by_region = {
        cluster.region: [
            {
                "from_region": start,
                "gbps": round(speed.gbps, 6) or None,
                "known_by": speed.known_by.value,
                "at_least": speed.at_least,
                "as_of_at": format_utc(speed.as_of_ms) if speed.as_of_ms else None,
            }
            for start, speed in ways_taken(spec, world.datasets, ways, cluster.region)
        ]
        for cluster in problem.clusters
    }
    return {
        pool.name: {
            "transfer_s": round(3600 * where.transfer_h(job, pool), 3),
            "transfer_ways": by_region[where.region(pool)],
        }
        for pool in problem.pools
    }


def _row(
    candidate: Candidate, world: World, start: StartEstimate, room: Room | None
) -> dict[str, Any]:
    short = candidate.pool.split("/", 1)[1]
    price = _prices(world.fleet, candidate.cluster).get(short)
    terms = asdict(candidate.terms) if candidate.terms else {}
    against = None if candidate.chosen or not candidate.refusals else candidate.refusals[0]
    waits_s = candidate.start_s - start.p50_s if candidate.queued else 0.0
    waits = against is not None and waits_for_room(against.code) and room is not None
    return {
        "cluster": candidate.cluster,
        "pool": short,
        "queued": candidate.queued,
        "region": candidate.region,
        "accelerator": candidate.accelerator,
        "feasible": candidate.feasible or candidate.chosen > 0,
        "chosen": candidate.chosen > 0,
        "copies": candidate.chosen,
        "start_delay_s": round(start.p50_s + waits_s, 3),
        "start_delay_p90_s": round(start.p90_s + waits_s, 3),
        "room_in_s": _from_now(room, world.now_ms) if waits and room else None,
        "hours": candidate.hours,
        "fetch_bytes": start.fetch_bytes,
        "starts_measured": start.samples,
        "rate_usd_per_hour": candidate.rate_usd_per_h,
        "total_usd": candidate.terms.total_usd if candidate.terms else None,
        "egress_usd": terms.get("egress_usd"),
        "rtt_ms": candidate.rtt_ms,
        "terms": {name: value for name, value in terms.items() if value},
        "price_source": price.source if price else "",
        "price_as_of_at": format_utc(price.as_of_ms) if price else None,
        "why_not": None
        if against is None
        else {
            "code": against.code.value,
            "text": reason_words(against.text),
            "advice": reason_words(against.advice),
        },
    }


def _prices(fleet: Fleet, cluster: str) -> Mapping[str, Any]:
    return fleet.clusters[Cluster(cluster)].prices


def _from_now(room: Room, now_ms: int) -> list[float]:
    return [max(at_ms - now_ms, 0) / 1000 for at_ms in (room.from_ms, room.until_ms)]


def waiting_rows(
    waits: Explanation | None, job: Job | None = None, rooms: Rooms | None = None
) -> list[dict[str, Any]]:
    """Per cluster the reason that binds, nearest pool of each; with the job what would start it
    there, and when there will be room if nothing changes."""
    return [_reason(reason, job, rooms or {}) for reason in (waits.reasons if waits else ())]


def _reason(reason: ClusterReason, job: Job | None, rooms: Rooms) -> dict[str, Any]:
    first = reason.refusals[0]
    room = rooms.get(reason.pool) if waits_for_room(first.code) else None
    return {
        "cluster": reason.cluster,
        "pool": reason.pool.partition("/")[2],
        "standing": reason.standing.value,
        "code": first.code.value,
        "text": reason_words(first.text),
        "advice": reason_words(first.advice),
        "change": advice_words(reason.advice, job) if reason.advice and job else None,
        "room_from_at": format_utc(room.from_ms) if room else None,
        "room_until_at": format_utc(room.until_ms) if room else None,
    }


def change_json(waits: Explanation | None, job: Job) -> dict[str, Any] | None:
    """The smallest change that would start it, confirmed by deciding again."""
    if waits is None or waits.advice is None:
        return None
    advice: Advice = waits.advice
    cluster, _, pool = advice.pool.partition("/")
    return {
        "text": advice_words(advice, job),
        "cluster": cluster,
        "pool": pool,
        "verified": True,
    }


def decision_json(cycle: str, plan: Plan, decided_ms: int, cpu_s: float) -> dict[str, Any]:
    """How good a plan is known to be, as the API shows it."""
    return {
        "cycle": cycle,
        "status": plan.status.value,
        "objective_usd": plan.objective_usd,
        "bound_usd": plan.bound_usd,
        "gap": plan.gap,
        "decided_at": format_utc(decided_ms),
        "cpu_s": round(cpu_s, 4),
    }
