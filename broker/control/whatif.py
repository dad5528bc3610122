"""What if the world were another: the queue decided twice on a snapshot, as it is and changed.

Running jobs stay where they are, as in production, but for those in a cluster that is lost: these
start anew among the rest. Nothing is stored. A user sees own jobs, and of others the totals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from broker.control.books import copies_wanted
from broker.control.build_problem import Waiting, World, build
from broker.control.ends import end_ms, ends_of
from broker.control.forecast import Expected, Forecast
from broker.control.policies import govern
from broker.control.policy_book import PolicyBook
from broker.control.policy_text import read_policy
from broker.control.policy_trial import TRIAL_JOBS_MAX, TrialPorts, wants_places
from broker.control.problem_pools import pool_name
from broker.control.sides import comparison, side
from broker.control.snapshots import Specs, live_jobs
from broker.control.trial_rows import Subject, compare
from broker.control.viewing import Viewer
from broker.decide.objective import cost_terms
from broker.decide.terms import Geography
from broker.decide.whatif import Changes, QuotaChange, UnknownTarget, changed, clusters_named
from broker.model.fleet import TenantPolicy
from broker.model.jobs import Attempt, Job, JobPhase
from broker.model.plan import Assignment, Plan
from broker.model.policies import Policies, PolicyVersion, Ruling
from broker.model.problem import Problem
from federation.ids import JobId, Tenant
from federation.jobs import JobSpec


@dataclass(frozen=True, slots=True)
class WhatIfAsk:
    """What is changed: the world, policies put in force (as YAML), and jobs added, each so many
    times."""

    changes: Changes = Changes()
    policies: tuple[str, ...] = ()
    jobs: tuple[tuple[JobSpec, int], ...] = ()


@dataclass(slots=True)
class _Scene:
    """Jobs of both sides: what waits under its rulings, what has to go, and who is told of."""

    subjects: list[Subject] = field(default_factory=list)
    before: list[Waiting] = field(default_factory=list)
    after: list[Waiting] = field(default_factory=list)
    leaving: dict[str, Attempt] = field(default_factory=dict)
    left_out: int = 0


class WhatIf:
    """Answers one question at a time: each may keep a core busy for seconds."""

    def __init__(self, ports: TrialPorts) -> None:
        self._ports = ports
        self._book = PolicyBook(ports.projection)
        self._one = asyncio.Lock()

    async def answer(self, ask: WhatIfAsk, viewer: Viewer) -> dict[str, Any]:
        """Today beside the changed world. Raises UnknownTarget, InvalidPolicy."""
        async with self._one:
            world = self._ports.world()
            before = await asyncio.to_thread(build, world, [])
            lost = clusters_named(before, ask.changes.lose)
            changed(before, replace(ask.changes, quotas=()))  # what is unknown is refused at once
            after_world = _changed_world(world, ask.changes.quotas, lost)
            scene = await self._scene(ask, lost, world.now_ms)
            today = await self._today(world, scene)
            whatif = await self._changed(after_world, scene, ask.changes)
            problems, plans = (today[0], whatif[0]), (today[1], whatif[1])
            compared = await asyncio.to_thread(compare, scene.subjects, problems, plans)
            seen = [s for s in scene.subjects if viewer.may_see(s.tenant)]
            shown = None if viewer.operator else {s.id for s in seen}
            rows = [row for row in compared.rows if shown is None or row["job"] in shown]
            sides = [
                await asyncio.to_thread(side, *pair, await self._later(*pair, of), shown)
                for pair, of in ((today, world), (whatif, after_world))
            ]
        answer = comparison(sides[0], sides[1], rows)
        answer["moved"] = compared.moved
        answer["running"] = {"stay": _running(after_world), "displaced": len(scene.leaving)}
        answer["notes"] = _notes(scene, compared.moved - len(rows), viewer)
        return answer

    # Both sides -----------------------------------------------------------------------------------

    async def _scene(self, ask: WhatIfAsk, lost: frozenset[str], now_ms: int) -> _Scene:
        before, specs = self._book.policies(), Specs(self._ports.projection)
        after, scene = _with_policies(before, ask.policies), _Scene()
        for job in await live_jobs(self._ports.projection, _is_live):
            spec = specs.of(job.id)
            if spec is None:
                continue
            rulings = govern(spec, before), govern(spec, after)
            for attempt in job.counting_attempts:
                if attempt.cluster in lost:
                    _displace(scene, job, attempt, rulings)
            copies = copies_wanted(job, spec.array.limit if spec.array else None)
            if wants_places(job) and copies > 0:
                if len(scene.before) >= TRIAL_JOBS_MAX:
                    scene.left_out += 1
                    continue
                scene.before.append(Waiting.under(rulings[0], job, copies))
                scene.after.append(Waiting.under(rulings[1], job, copies))
                scene.subjects.append(_subject(job, job.id, "queued", copies, rulings))
        _add(scene, ask.jobs, after, now_ms)
        return scene

    async def _today(self, world: World, scene: _Scene) -> tuple[Problem, Plan]:
        """The queue as it is, and what will have to go where it runs now."""
        stay = [w for w in scene.after if w.job.id in scene.leaving]
        problem = await asyncio.to_thread(build, world, [*scene.before, *stay])
        queue = replace(
            problem, jobs=tuple(j for j in problem.jobs if j.id not in scene.leaving)
        )
        plan = (await self._ports.decide(queue)).plan
        jobs, there, where, cost_usd = [], [], Geography(problem), plan.cost_usd
        pools = {pool.name: pool for pool in problem.pools}
        for job in problem.jobs:
            attempt = scene.leaving.get(job.id)
            if attempt is not None:
                pool = pool_name(attempt.cluster, attempt.pool)
                expected_s = round(job.runtime_h * 3600)
                left_ms = end_ms(attempt, expected_s, world.now_ms) - world.now_ms
                job = replace(job, runtime_h=left_ms / 3_600_000, current_pool=pool)
                there.append(Assignment(job.id, pool, attempt.copies))
                cost_usd += attempt.copies * cost_terms(where, job, pools[pool]).total_usd
            jobs.append(job)
        assignments = (*plan.assignments, *there)
        plan = replace(plan, assignments=assignments, cost_usd=cost_usd)
        return replace(problem, jobs=tuple(jobs)), plan

    async def _changed(
        self, world: World, scene: _Scene, changes: Changes
    ) -> tuple[Problem, Plan]:
        built = await asyncio.to_thread(build, world, scene.after)
        problem = changed(built, replace(changes, quotas=()))
        return problem, (await self._ports.decide(problem)).plan

    async def _later(self, problem: Problem, plan: Plan, world: World) -> list[Expected]:
        """When jobs that only wait for room will probably start."""
        attempts = [a for of_cluster in world.attempts.values() for a in of_cluster]
        said_s = Specs(self._ports.projection).expected_runtime_s
        ends = ends_of(attempts, said_s, world.now_ms)
        wanted = frozenset(item.job for item in plan.unplaced)

        def work() -> list[Expected]:
            forecast = Forecast(problem, plan, ends, world.now_ms, wanted)
            for _ in forecast.steps():
                pass
            return forecast.expected

        return await asyncio.to_thread(work) if wanted else []


def _is_live(job: Job) -> bool:
    return bool(job.live_attempts) or wants_places(job)


def _add(
    scene: _Scene, jobs: Sequence[tuple[JobSpec, int]], policies: Policies, now_ms: int
) -> None:
    """Jobs that are not there stand at the end of the queue."""
    number = 0
    for spec, count in jobs:
        ruling = govern(spec, policies)
        for _ in range(count):
            number += 1
            job = Job(
                id=JobId(f"new-{number}"), tenant=Tenant(spec.tenant or ""),
                name=spec.name or "", subject="", priority=spec.priority, class_key="",
                created_ms=now_ms, changed_ms=now_ms, phase=JobPhase.QUEUED,
            )  # fmt: skip
            scene.after.append(Waiting.under(ruling, job, spec.copies))
            scene.subjects.append(
                _subject(job, job.id, "added", spec.copies, (ruling, ruling))
            )


def _displace(
    scene: _Scene, job: Job, attempt: Attempt, rulings: tuple[Ruling, Ruling]
) -> None:
    """What runs in a lost cluster stands in the queue again, as old as it is."""
    again = replace(job, id=JobId(attempt.uid))
    scene.leaving[attempt.uid] = attempt
    scene.after.append(Waiting.under(rulings[1], again, attempt.copies))
    scene.subjects.append(_subject(job, attempt.uid, "running", attempt.copies, rulings))


def _subject(
    job: Job, name: str, state: str, copies: int, rulings: tuple[Ruling, Ruling]
) -> Subject:
    return Subject(
        id=name,
        name=job.name,
        tenant=job.tenant,
        state=state,
        priority=job.priority,
        created_ms=job.created_ms,
        copies=copies,
        ran_in=", ".join(sorted({str(a.cluster) for a in job.live_attempts})),
        policies=(rulings[0].policies, rulings[1].policies),
        affected=rulings[0] != rulings[1] or state != "queued",
    )


def _with_policies(before: Policies, sources: Sequence[str]) -> Policies:
    after = before
    for source in sources:
        policy = read_policy(source)
        known = after.current.get(policy.name)
        tried = PolicyVersion(policy, known.version + 1 if known else 1, source=source)
        after = replace(
            after,
            current={**after.current, policy.name: tried},
            unreadable={k: v for k, v in after.unreadable.items() if k != policy.name},
        )
    return after


def _changed_world(
    world: World, quotas: Sequence[QuotaChange], lost: frozenset[str]
) -> World:
    tenants: dict[str, TenantPolicy] = dict(world.tenants)
    for change in quotas:
        policy = tenants.get(change.tenant, TenantPolicy(change.tenant))
        if change.cluster is None:
            tenants[change.tenant] = replace(policy, quota_accelerators=change.accelerators)
            continue
        if change.cluster not in world.fleet.clusters:
            raise UnknownTarget("cluster", change.cluster, map(str, world.fleet.clusters))
        kept: Mapping[str, int] = {
            name: n for name, n in policy.cluster_quota.items() if name != change.cluster
        }
        if change.accelerators is not None:
            kept = {**kept, change.cluster: change.accelerators}
        tenants[change.tenant] = replace(policy, cluster_quota=kept)
    attempts = {name: a for name, a in world.attempts.items() if name not in lost}
    return replace(world, tenants=tenants, attempts=attempts)


def _running(world: World) -> int:
    return sum(a.live for of_cluster in world.attempts.values() for a in of_cluster)


def _notes(scene: _Scene, hidden: int, viewer: Viewer) -> list[str]:
    notes = []
    if scene.left_out:
        notes.append(f"{scene.left_out} jobs at the end of the queue were left out")
    if hidden > 0 and not viewer.operator:
        notes.append(f"{hidden} jobs of others would move")
    elif hidden > 0:
        notes.append(f"{hidden} more jobs would move")
    return notes
