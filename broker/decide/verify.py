"""Check a plan against its problem, without any solver and without the code that made it.

Everything is computed afresh from the definitions in docs/planning-problem.md, in plain scalar
arithmetic. A plan with a violation must never be used.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from broker.decide.verify_nodes import NodeCheck, check_nodes
from broker.model.plan import Plan, PlanStatus
from broker.model.problem import Job, Mode, Pool, Problem

Table = tuple[tuple[float, ...], ...]

SLACK = 1e-9
"""Relative slack of every limit."""


class ViolationKind(StrEnum):
    """What is wrong with a plan."""

    REFERENCE = "reference"
    COUNT = "count"
    INFEASIBLE = "infeasible"
    CAPACITY = "capacity"
    QUOTA = "quota"
    PACKING = "packing"
    FRAGMENTATION = "fragmentation"
    MONEY = "money"
    BOUND = "bound"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong; `text` names the job, pool or tenant and the figures."""

    kind: ViolationKind
    text: str


def verify(problem: Problem, plan: Plan) -> tuple[Violation, ...]:
    """All violations of a plan; empty means the plan may be used. Never raises for any plan."""
    return tuple(_Verifier(problem, plan).violations())


def within(used: float, limit: float | None) -> bool:
    """Whether a use is within a limit (None = no limit), with the slack."""
    return limit is None or used <= limit * (1 + SLACK)


def same_money(left: float, right: float) -> bool:
    """Whether two sums of money in USD agree, far closer than the tolerance of the format."""
    return abs(left - right) <= 1e-3 + 1e-8 * max(abs(left), abs(right))


class _Verifier:
    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem = problem
        self.plan = plan
        self.jobs = {job.id: job for job in problem.jobs}
        self.pools = {pool.name: pool for pool in problem.pools}
        self.clusters = {cluster.name: cluster for cluster in problem.clusters}
        self.region_index = {name: index for index, name in enumerate(problem.regions)}
        self.placed = {(a.job, a.pool): a.count for a in plan.assignments}
        self.infeasible: set[tuple[str, str]] = set()

    def violations(self) -> Iterator[Violation]:
        broken = list(self._references())
        yield from broken
        if broken:
            return
        yield from self._counts()
        yield from self._feasibility()
        yield from self._pool_totals()
        yield from self._quotas()
        nodes = check_nodes(self.problem, self.plan)
        for text in nodes.packing:
            yield Violation(ViolationKind.PACKING, text)
        for text in nodes.fragmentation:
            yield Violation(ViolationKind.FRAGMENTATION, text)
        yield from self._money(nodes)
        yield from self._bound()

    def _references(self) -> Iterator[Violation]:
        plan = self.plan
        seen: set[tuple[str, str]] = set()
        for item in plan.assignments:
            if (item.job, item.pool) in seen:
                yield _reference(f"{item.job} in {item.pool} is assigned twice")
            seen.add((item.job, item.pool))
        names = [item.job for item in plan.assignments] + [item.job for item in plan.unplaced]
        names += [job for fill in plan.fills for job, _ in fill.contents]
        for name in names:
            if name not in self.jobs:
                yield _reference(f"no job {name!r}")
        pools = [item.pool for item in plan.assignments] + [fill.pool for fill in plan.fills]
        for name in [*pools, *plan.whole_nodes]:
            if name not in self.pools:
                yield _reference(f"no pool {name!r}")

    def _counts(self) -> Iterator[Violation]:
        left = {job.id: job.count for job in self.problem.jobs}
        for item in self.plan.assignments:
            if item.count < 1:
                yield _count(f"{item.job} in {item.pool}: {item.count} copies")
            left[item.job] -= item.count
        stated: dict[str, int] = defaultdict(int)
        for rest in self.plan.unplaced:
            if rest.job in stated:
                yield _count(f"{rest.job} is listed as unplaced twice")
            stated[rest.job] += rest.count
        for name, count in left.items():
            if count != stated.get(name, 0):
                yield _count(f"{name}: {count} copies are left, not {stated.get(name, 0)}")
            elif count < 0 or (count == 0 and name in stated):
                yield _count(f"{name}: {count} copies are left")

    def _feasibility(self) -> Iterator[Violation]:
        for job_id, pool_name in self.placed:
            job, pool = self.jobs[job_id], self.pools[pool_name]
            reason = self._infeasible(job, pool)
            if reason:
                self.infeasible.add((job_id, pool_name))
                text = f"{job_id} in {pool_name}: {reason}"
                yield Violation(ViolationKind.INFEASIBLE, text)

    def _infeasible(self, job: Job, pool: Pool) -> str:
        speed = job.accelerators.get(pool.accelerator)
        if speed is None:
            return f"may not run on {pool.accelerator}"
        hours = job.runtime_h / speed
        cluster = self.clusters[pool.cluster]
        delay_h = self._start_s(job, pool) / 3600
        gang = job.replicas * job.accelerators_per_replica
        spending = gang * pool.price_usd_per_accelerator_hour * hours + self._egress(job, pool)
        rules = (
            (pool.unusable is None, "the pool is not usable"),
            (pool.cluster not in job.excluded, "is excluded from the cluster"),
            (job.spot_ok or not pool.spot, "may not run on spot"),
            (job.regions is None or cluster.region in job.regions, "region is not allowed"),
            (within(self._rtt(job, pool), job.max_rtt_ms), "round trip is too long"),
            (within(hours + delay_h, job.deadline_h), "ends after the deadline"),
            (within(spending, job.budget_usd), "is over its budget"),
            (
                within(pool.price_usd_per_accelerator_hour, job.max_price_usd_per_accelerator_hour),
                "is over its price cap",
            ),
        )
        return next((reason for fine, reason in rules if not fine), "")

    def _start_s(self, job: Job, pool: Pool) -> float:
        if job.current_pool == pool.name:
            return 0.0
        cluster = self.clusters[pool.cluster]
        cold = cluster.cold_start_s
        fallback = cold.get("*", 0.0)
        image_s = fallback if job.image is None else cold.get(job.image, fallback)
        return image_s + cluster.start_delay_s

    def _between(
        self, table: tuple[tuple[float, ...], ...], start: str | None, pool: Pool
    ) -> float:
        if start is None or not table:
            return 0.0
        end = self.clusters[pool.cluster].region
        return table[self.region_index[start]][self.region_index[end]]

    def _rtt(self, job: Job, pool: Pool) -> float:
        return self._between(self.problem.rtt_ms, job.user_region, pool)

    def _egress(self, job: Job, pool: Pool) -> float:
        if job.current_pool == pool.name:
            return 0.0
        rate = self._between(self.problem.egress_usd_per_gb, job.data_region, pool)
        return job.input_gb * rate

    def _copy_cost(self, job: Job, pool: Pool) -> float:
        """USD of one copy of the job in the pool, fragmentation apart."""
        stays = job.current_pool == pool.name
        start_s = self._start_s(job, pool)
        delay_s = 0.0 if stays else self.clusters[pool.cluster].start_delay_s
        hours = job.runtime_h / job.accelerators[pool.accelerator] + (start_s - delay_s) / 3600
        gang = job.replicas * job.accelerators_per_replica
        moved = job.current_pool is not None and not stays
        return math.fsum(
            (
                gang * pool.price_usd_per_accelerator_hour * hours,
                self._egress(job, pool),
                job.latency_usd_per_ms * self._rtt(job, pool),
                job.value_of_time_usd_per_h * start_s / 3600,
                job.migration_usd + job.lost_work_usd if moved else 0.0,
            )
        )

    def _pool_totals(self) -> Iterator[Violation]:
        cpus: dict[str, list[float]] = defaultdict(list)
        memory: dict[str, list[float]] = defaultdict(list)
        for (job_id, pool_name), count in self.placed.items():
            job = self.jobs[job_id]
            cpus[pool_name].append(count * job.replicas * job.replica_cpus)
            memory[pool_name].append(count * job.replicas * job.replica_memory_gib)
        for name in cpus:
            pool = self.pools[name]
            for kind, uses, limit in (
                ("cpus", cpus[name], pool.free_cpus),
                ("GiB of memory", memory[name], pool.free_memory_gib),
            ):
                if not within(math.fsum(uses), limit):
                    text = f"{name}: {math.fsum(uses)} {kind} used of {limit}"
                    yield Violation(ViolationKind.CAPACITY, text)

    def _quotas(self) -> Iterator[Violation]:
        used: dict[str, int] = defaultdict(int)
        used_in: dict[tuple[str, str], int] = defaultdict(int)
        for (job_id, pool_name), count in self.placed.items():
            job = self.jobs[job_id]
            accelerators = count * job.replicas * job.accelerators_per_replica
            used[job.tenant] += accelerators
            used_in[job.tenant, self.pools[pool_name].cluster] += accelerators
        for tenant in self.problem.tenants:
            quota = tenant.quota_accelerators
            if quota is not None and used[tenant.name] > quota:
                yield _quota(f"{tenant.name}: {used[tenant.name]} accelerators of {quota}")
            for cluster, limit in tenant.cluster_quota.items():
                amount = used_in[tenant.name, cluster]
                if amount > limit:
                    yield _quota(f"{tenant.name} in {cluster}: {amount} accelerators of {limit}")

    def _money(self, nodes: NodeCheck) -> Iterator[Violation]:
        plan, objective = self.plan, self.problem.objective
        placed: dict[int, int] = defaultdict(int)
        terms = [nodes.whole_nodes * objective.fragmentation_usd_per_node]
        left = {job.id: job.count for job in self.problem.jobs}
        for (job_id, pool_name), count in self.placed.items():
            job = self.jobs[job_id]
            if (job_id, pool_name) not in self.infeasible:
                terms.append(count * self._copy_cost(job, self.pools[pool_name]))
            placed[job.priority] += count * job.replicas * job.accelerators_per_replica
            left[job_id] -= count
        running = (job for job in self.problem.jobs if job.current_pool is not None)
        terms.extend(job.lost_work_usd * left[job.id] for job in running)
        cost = math.fsum(terms)
        if not same_money(cost, plan.cost_usd):
            yield _money(f"the cost is {cost} USD, not {plan.cost_usd}")
        for priority in {*placed, *plan.placed}:
            if placed[priority] != plan.placed.get(priority, 0):
                stated = plan.placed.get(priority, 0)
                yield _money(f"priority {priority}: {placed[priority]} placed, not {stated}")
        value = 0.0
        if objective.mode is Mode.SCALAR:
            values = objective.value_usd_per_accelerator
            value = math.fsum(values[level] * amount for level, amount in placed.items() if amount)
        if not same_money(value - cost, plan.objective_usd):
            yield _money(f"the objective is {value - cost} USD, not {plan.objective_usd}")

    def _bound(self) -> Iterator[Violation]:
        bound, reached = self.plan.bound_usd, self.plan.objective_usd
        if bound is None:
            if self.plan.status is PlanStatus.OPTIMAL:
                yield Violation(ViolationKind.BOUND, "optimal without a bound")
            return
        tolerance = 1 + 1e-6 * abs(bound)
        if not math.isfinite(bound) or reached > bound + tolerance:
            yield Violation(ViolationKind.BOUND, f"objective {reached} is over the bound {bound}")
        elif self.plan.status is PlanStatus.OPTIMAL and reached < bound - tolerance:
            yield Violation(ViolationKind.BOUND, f"optimal, but {bound} may be possible")


def _reference(text: str) -> Violation:
    return Violation(ViolationKind.REFERENCE, text)


def _count(text: str) -> Violation:
    return Violation(ViolationKind.COUNT, text)


def _quota(text: str) -> Violation:
    return Violation(ViolationKind.QUOTA, text)


def _money(text: str) -> Violation:
    return Violation(ViolationKind.MONEY, text)
