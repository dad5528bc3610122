"""Why a job is where it is, or waits: the answers behind `explain`, `plan` and `submit --dry-run`.

Built from the same problem a cycle would see, decided the same way; nothing is stored. A tenant
sees others only as totals.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from broker.control.books import copies_wanted
from broker.control.build_problem import Waiting, World, build
from broker.control.cold_start import blobs_of
from broker.control.office import Office
from broker.control.policies import ruling_class
from broker.control.policy_book import PolicyBook
from broker.control.sites import Sites
from broker.control.viewing import Viewer
from broker.decide.explain import Candidate, Explanation, candidates, explain_unplaced
from broker.feedback.ports import Ledger
from broker.model.fleet import Fleet
from broker.model.jobs import Attempt, Job, JobPhase
from broker.model.plan import Plan
from broker.model.problem import Problem
from broker.sense.fleet import read_tenants
from broker.sense.start_delay import StartEstimate
from broker.state.projection import Projection
from federation.environment import Clock
from federation.ids import Cluster, JobId, Tenant
from federation.jobs import JobSpec
from federation.runs import Runs
from federation.units import format_utc

IMAGINED = JobId("j0000000000000000")


class Explainer:
    """Explains jobs of one replica."""

    def __init__(
        self,
        office: Office,
        projection: Projection,
        sites: Sites,
        ledger: Ledger,
        clock: Clock,
        typed_rtt_ms: Mapping[tuple[str, str], float],
    ) -> None:
        self._office = office
        self._projection = projection
        self._sites = sites
        self._ledger = ledger
        self._clock = clock
        self._typed = typed_rtt_ms
        self._policies = PolicyBook(projection)

    async def explain(self, job: Job, spec: JobSpec, viewer: Viewer) -> dict[str, Any]:
        """A job's receipt while it runs or has ended; what it waits for while it waits."""
        answer: dict[str, Any]
        if job.phase in (JobPhase.QUEUED, JobPhase.HELD):
            answer = await self._decide(job, spec)
            if job.awaits:
                answer["summary"] = f"{job.awaits_text}; then {answer['summary']}"
        else:
            answer = await self._receipt(job)
        answer.update(job=job.id, phase=job.phase.value)
        answer["summary"] = answer.get("summary") or _summary(job)
        answer["others"] = self._others(job, viewer)
        answer["prepared_in"] = self._office.prepared_in(job.id)
        return answer

    async def dry_run(self, spec: JobSpec, tenant: str, viewer: Viewer) -> dict[str, Any]:
        """What would be decided for this spec now."""
        now_ms = self._clock.now_ms()
        job = Job(
            id=IMAGINED,
            tenant=Tenant(tenant),
            name=spec.name or "",
            subject=viewer.subject,
            priority=spec.priority,
            class_key=ruling_class(self._policies.govern(spec), 24 * 3600),
            created_ms=now_ms,
            changed_ms=now_ms,
            tasks=spec.array.tasks if spec.array else Runs(),
        )
        answer = await self._decide(job, spec)
        answer["others"] = self._others(job, viewer)
        return answer

    # A decision made for the answer -------------------------------------------------------------

    async def _decide(self, job: Job, spec: JobSpec) -> dict[str, Any]:
        world, ruling = self.world(), self._policies.govern(spec)
        limit = spec.array.limit if spec.array else None
        copies = max(copies_wanted(replace(job, held=False, awaits=()), limit), 1)
        problem = build(world, [Waiting.under(ruling, job, copies)])
        decided = await self._office.decide(problem)
        told = await asyncio.to_thread(
            _answer, problem, decided.plan, Waiting.under(ruling, job, copies), world, decided.cpu_s
        )
        return {**told, "policies": list(ruling.policies)}

    def world(self) -> World:
        """The world at this instant, as this replica sees it."""
        attempts: dict[str, list[Attempt]] = {}
        for job in self._projection.jobs():
            for attempt in job.attempts:
                attempts.setdefault(attempt.cluster, []).append(attempt)
        return World(
            self._sites.fleet(),
            attempts,
            read_tenants(self._projection),
            self._clock.now_ms(),
            self._typed,
            self._office.starts.delays,
        )

    # What was decided before --------------------------------------------------------------------

    async def _receipt(self, job: Job) -> dict[str, Any]:
        """The receipt of the latest attempt, as recorded by its cycle."""
        for entry in reversed(await self._ledger.receipts(job.id)):
            body = json.loads(entry.body_json)
            if "candidates" in body:
                return _without(body, "kind")
        return {
            "chosen": None,
            "candidates": [],
            "waiting": [],
            "smallest_change": None,
            "decision": None,
        }

    def _others(self, job: Job, viewer: Viewer) -> dict[str, int]:
        totals = {"accelerators_higher": 0, "accelerators_equal": 0, "accelerators_lower": 0}
        for other in self._projection.jobs():
            if other.id == job.id:
                continue
            held = sum(a.accelerators for a in other.live_attempts)
            if other.priority > job.priority:
                totals["accelerators_higher"] += held
            elif other.priority == job.priority:
                totals["accelerators_equal"] += held
            else:
                totals["accelerators_lower"] += held
        return totals


def _without(body: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in body.items() if k != key}


def _summary(job: Job) -> str:
    live = job.counting_attempts
    if job.phase is JobPhase.ENDED and job.outcome is not None:
        return f"ended: {job.outcome.kind.value} {job.outcome.text}".strip()
    if live:
        where = ", ".join(f"{a.cluster} ({a.phase.value})" for a in live)
        unheard = [a for a in job.live_attempts if not a.counts]
        rest = "".join(f"; {a.uid} at {a.cluster} is superseded by it" for a in unheard)
        return f"{job.phase.value} on {where}{rest}"
    return job.reason_text or "waiting for its first decision"


def _answer(
    problem: Problem, plan: Plan, waiting: Waiting, world: World, cpu_s: float
) -> dict[str, Any]:
    job = waiting.job
    rows = candidate_rows(problem, job.id, plan, world, blobs_of(waiting.spec))
    waits: Explanation | None = None
    if any(u.job == job.id for u in plan.unplaced):
        waits = explain_unplaced(problem, plan, job.id)
    picked = next((row for row in rows if row["chosen"]), None)
    return {
        "chosen": picked,
        "candidates": rows,
        "waiting": waiting_rows(waits),
        "smallest_change": None if picked else change_json(waits),
        "decision": decision_json("", plan, world.now_ms, cpu_s),
        "summary": f"would start on {picked['cluster']}" if picked else _why(plan, job.id),
    }


def waiting_rows(waits: Explanation | None) -> list[dict[str, Any]]:
    """Per cluster the reason that binds, nearest pool of each."""
    return [
        {
            "cluster": reason.cluster,
            "pool": reason.pool.partition("/")[2],
            "standing": reason.standing.value,
            "code": reason.refusals[0].code.value,
            "text": reason.refusals[0].text,
            "advice": reason.refusals[0].advice,
        }
        for reason in (waits.reasons if waits else ())
    ]


def change_json(waits: Explanation | None) -> dict[str, Any] | None:
    """The smallest change that would start it, confirmed by deciding again."""
    if waits is None or waits.advice is None:
        return None
    advice = waits.advice
    return {"text": advice.text, "cluster": advice.pool.split("/", 1)[0], "verified": True}


def _why(plan: Plan, job_id: str) -> str:
    for unplaced in plan.unplaced:
        if unplaced.job == job_id:  # the reason nearest to a start, as the cycle records it
            return f"waits: {unplaced.refusal.text}"
    return "waits: no cluster has joined and reported yet"


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


def candidate_rows(
    problem: Problem, job_id: str, plan: Plan, world: World, blobs: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The candidate table of one job, which starts with these blobs: every pool, cheapest
    feasible first, CHOSEN marked."""
    job = next(job for job in problem.jobs if job.id == job_id)
    starts = {cluster.name: world.start_at(cluster.name, blobs) for cluster in problem.clusters}
    return [
        _row(candidate, world.fleet, starts[candidate.cluster])
        for candidate in candidates(problem, job, plan)
    ]


def _row(candidate: Candidate, fleet: Fleet, start: StartEstimate) -> dict[str, Any]:
    short = candidate.pool.split("/", 1)[1]
    price = fleet.clusters[Cluster(candidate.cluster)].prices.get(short)
    terms = asdict(candidate.terms) if candidate.terms else {}
    against = None if candidate.chosen or not candidate.refusals else candidate.refusals[0]
    return {
        "cluster": candidate.cluster,
        "pool": short,
        "region": candidate.region,
        "accelerator": candidate.accelerator,
        "feasible": candidate.feasible or candidate.chosen > 0,
        "chosen": candidate.chosen > 0,
        "copies": candidate.chosen,
        "start_delay_s": round(start.p50_s, 3),
        "start_delay_p90_s": round(start.p90_s, 3),
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
        else {"code": against.code.value, "text": against.text, "advice": against.advice},
    }
