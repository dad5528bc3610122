"""Why a job is where it is, or waits: the answers behind `explain`, `plan` and `submit --dry-run`.

Built from the same problem a cycle would see, decided the same way; nothing is stored. A tenant
sees others only as totals.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from broker.control.books import copies_wanted
from broker.control.build_problem import Waiting, World, build
from broker.control.office import Office
from broker.control.sites import Sites
from broker.control.viewing import Viewer
from broker.decide.explain import Advice, ClusterReason, explain_unplaced
from broker.decide.explain import candidates as pool_candidates
from broker.feedback.ports import Ledger
from broker.model.fleet import Fleet
from broker.model.jobs import Attempt, Job, JobPhase
from broker.model.plan import Plan
from broker.model.problem import Problem
from broker.sense.fleet import read_tenants
from broker.state.projection import Projection
from federation.environment import Clock
from federation.ids import JobId, Tenant
from federation.jobs import JobSpec, class_key
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

    async def explain(self, job: Job, spec: JobSpec, viewer: Viewer) -> dict[str, Any]:
        """A job's receipt while it runs or has ended; what it waits for while it waits."""
        answer: dict[str, Any]
        if job.phase in (JobPhase.QUEUED, JobPhase.HELD):
            answer = await self._decide(job, spec)
        else:
            answer = await self._receipt(job)
        answer.update(job=job.id, phase=job.phase.value)
        answer["summary"] = answer.get("summary") or _summary(job)
        answer["others"] = self._others(job, viewer)
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
            class_key=class_key(spec, 24 * 3600),
            created_ms=now_ms,
            changed_ms=now_ms,
            tasks=spec.array.tasks if spec.array else Runs(),
        )
        answer = await self._decide(job, spec)
        answer["others"] = self._others(job, viewer)
        return answer

    # A decision made for the answer -------------------------------------------------------------

    async def _decide(self, job: Job, spec: JobSpec) -> dict[str, Any]:
        world = self._world()
        limit = spec.array.limit if spec.array else None
        copies = max(copies_wanted(replace(job, held=False), limit), 1)
        problem = build(world, [Waiting(job, spec, copies)])
        decided = await self._office.decide(problem)
        return await asyncio.to_thread(_answer, problem, decided.plan, job, world, decided.cpu_s)

    def _world(self) -> World:
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
    live = job.live_attempts
    if job.phase is JobPhase.ENDED and job.outcome is not None:
        return f"ended: {job.outcome.kind.value} {job.outcome.text}".strip()
    if live:
        where = ", ".join(f"{a.cluster} ({a.phase.value})" for a in live)
        return f"{job.phase.value} on {where}"
    return job.reason_text or "waiting for its first decision"


def _answer(
    problem: Problem, plan: Plan, job: Job, world: World, cpu_s: float
) -> dict[str, Any]:
    chosen = {a.pool for a in plan.assignments if a.job == job.id}
    rows = candidate_rows(problem, job.id, chosen, world.fleet)
    reasons: Sequence[ClusterReason] = ()
    advice: Advice | None = None
    if any(u.job == job.id for u in plan.unplaced):
        reasons, advice = explain_unplaced(problem, plan, job.id)
    picked = next((row for row in rows if row["chosen"]), None)
    return {
        "chosen": picked,
        "candidates": rows,
        "waiting": [
            {"cluster": r.cluster, "code": r.code, "text": r.text, "advice": r.advice}
            for r in reasons
        ],
        "smallest_change": None
        if advice is None
        else {"text": advice.text, "cluster": advice.cluster, "verified": advice.verified},
        "decision": decision_json("", plan, world.now_ms, cpu_s),
        "summary": f"would start on {picked['cluster']}" if picked else _why(reasons, plan),
    }


def _why(reasons: Sequence[ClusterReason], plan: Plan) -> str:
    if plan.unplaced:
        return plan.unplaced[0].refusal.text
    return reasons[0].text if reasons else "no cluster has joined yet"


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
    problem: Problem, job_id: str, chosen: set[str], fleet: Fleet
) -> list[dict[str, Any]]:
    """The candidate table of one job: every pool, cheapest feasible first, CHOSEN marked."""
    rows = []
    for candidate in pool_candidates(problem, job_id):
        view = fleet.clusters[candidate.cluster]  # type: ignore[index]
        price = view.prices.get(candidate.pool.split("/", 1)[1])
        terms = asdict(candidate.terms) if candidate.terms else {}
        refusal = candidate.refusal
        rows.append(
            {
                "cluster": candidate.cluster,
                "pool": candidate.pool.split("/", 1)[1],
                "region": view.identity.region,
                "accelerator": candidate.accelerator,
                "feasible": candidate.feasible,
                "chosen": candidate.pool in chosen,
                "start_delay_s": candidate.start_delay_s,
                "rate_usd_per_hour": candidate.rate_usd_per_h,
                "total_usd": candidate.total_usd,
                "egress_usd": terms.get("egress_usd"),
                "rtt_ms": candidate.rtt_ms,
                "terms": {name: value for name, value in terms.items() if value},
                "price_source": price.source if price else "",
                "price_as_of_at": format_utc(price.as_of_ms) if price else None,
                "why_not": None
                if refusal is None or candidate.pool in chosen
                else {"code": refusal.code.value, "text": refusal.text, "advice": refusal.advice},
            }
        )
    return rows
