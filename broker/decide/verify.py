"""Check a plan against its problem, without any solver and without the code that made it.

Everything is computed afresh from the definitions in docs/planning-problem.md, in plain scalar
arithmetic. A plan with a violation must never be used.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from broker.decide.constraints import PAIR_CONSTRAINTS, SHARED_CONSTRAINTS
from broker.decide.constraints.constraint import Placed, Share
from broker.decide.later_starts import pool_of
from broker.decide.objective import TERMS
from broker.decide.same_node import in_gangs, merged, told_by_gang
from broker.decide.terms import Geography
from broker.decide.verify_nodes import NodeCheck, check_nodes
from broker.decide.violations import Violation, ViolationKind
from broker.model.plan import Assignment, Plan, PlanStatus
from broker.model.problem import Job, Mode, Pool, Problem

__all__ = ["Violation", "ViolationKind", "same_money", "verify"]


_AMOUNTS = tuple(term.amount for term in TERMS)


def verify(problem: Problem, plan: Plan) -> tuple[Violation, ...]:
    """All violations of a plan; empty means the plan may be used. Never raises for any plan."""
    return tuple(_Verifier(problem, plan).violations())


def same_money(left: float, right: float) -> bool:
    """Whether two sums of money in USD agree, far closer than the tolerance of the format."""
    return abs(left - right) <= 1e-3 + 1e-8 * max(abs(left), abs(right))


class _Verifier:
    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem = problem
        self.plan = plan
        self.jobs = {job.id: job for job in problem.jobs}
        self.pools = {pool.name: pool for pool in problem.pools}
        self.where = Geography(problem)
        self.shares: list[Share] = []
        self.infeasible: set[int] = set()

    def violations(self) -> Iterator[Violation]:
        broken = list(self._references())
        yield from broken
        if broken:
            return
        self.shares = [self._share(item) for item in self.plan.assignments]
        yield from self._counts()
        yield from self._feasibility()
        nodes = self._nodes()
        placed = Placed(self.problem, self.shares, self.plan.fills, nodes)
        for constraint in SHARED_CONSTRAINTS:
            for text in constraint.check(placed):
                yield Violation(constraint.kind, text)
        for text in nodes.fragmentation:
            yield Violation(ViolationKind.FRAGMENTATION, text)
        yield from self._money(nodes)
        yield from self._bound()

    def _share(self, item: Assignment) -> Share:
        pool = pool_of(self.pools[item.pool], item)
        return Share(self.jobs[item.job], pool, item.count, item.parts, item.level)

    def _nodes(self) -> NodeCheck:
        told = told_by_gang(self.problem, self.plan)
        problem = merged(told.problem)
        plan = told.plan
        if problem is not told.problem:
            jobs = {job.id: job for job in problem.jobs}
            fills = tuple(in_gangs(fill, jobs) for fill in plan.fills)
            plan = replace(plan, fills=fills, assignments=_as_merged(plan.assignments, jobs))
        found = check_nodes(problem, plan)
        found.together += told.wrong
        return found

    def _references(self) -> Iterator[Violation]:
        plan = self.plan
        seen: set[Hashable] = set()
        for item in plan.assignments:
            way = (item.job, item.place, item.parts, item.level)
            if way in seen:
                yield _reference(f"{item.job} in {item.pool} is assigned twice")
            seen.add(way)
        names = [item.job for item in plan.assignments] + [item.job for item in plan.unplaced]
        names += [job for fill in plan.fills for job, _ in fill.contents]
        for name in names:
            if name not in self.jobs:
                yield _reference(f"no job {name!r}")
        pools = [item.pool for item in plan.assignments] + [fill.pool for fill in plan.fills]
        pools += [part.pool for item in plan.assignments for part in item.parts]
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
        where = self.where
        checks = [(constraint.check, constraint) for constraint in PAIR_CONSTRAINTS]
        for index, share in enumerate(self.shares):
            if share.parts or share.level is not None or share.job.topology_usd:
                yield from self._levels(share)
            for job, pool in self._pairs(share):
                for check, constraint in checks:
                    if not check(where, job, pool):
                        self.infeasible.add(index)
                        text = f"{share.text}: {constraint.name}"
                        yield Violation(ViolationKind.INFEASIBLE, text)
                        break

    def _pairs(self, share: Share) -> Sequence[tuple[Job, Pool]]:
        """What must go together for a copy: its job, as it asks for its level, and its pools."""
        job = share.job
        if share.level is not None:
            job = replace(job, topology=share.level)
        if len(share.parts) < 2:
            return ((job, share.pool),)
        return [(job, self.pools[name]) for name in share.replicas]

    def _levels(self, share: Share) -> Iterator[Violation]:
        """A job that pays for levels is told one, no worse than it takes; any other none."""
        job = share.job
        pays = bool(job.topology_usd) and job.replicas > 1
        if pays != (share.level is not None):
            yield Violation(ViolationKind.INFEASIBLE, f"{share.text}: which level?")
        elif share.level is not None and share.level not in job.topology.and_better:
            yield Violation(ViolationKind.INFEASIBLE, f"{share.text}: {share.level} is too far")

    def _copy_usd(self, share: Share) -> float:
        """USD of a copy; in several pools each counts for its part of the replicas."""
        where, job, pool = self.where, share.job, share.pool
        if share.level is not None:
            job = replace(job, level_usd=job.topology_usd.get(share.level, 0.0))
        if len(share.parts) < 2:
            return math.fsum([amount(where, job, pool) for amount in _AMOUNTS])
        return math.fsum(
            replicas / job.replicas * amount(where, job, self.pools[name])
            for name, replicas in share.replicas.items()
            for amount in _AMOUNTS
        )

    def _money(self, nodes: NodeCheck) -> Iterator[Violation]:
        plan, objective = self.plan, self.problem.objective
        placed: dict[int, int] = defaultdict(int)
        terms = [nodes.whole_nodes * objective.fragmentation_usd_per_node]
        left = {job.id: job.count for job in self.problem.jobs}
        for index, share in enumerate(self.shares):
            if index not in self.infeasible:
                terms.append(share.copies * self._copy_usd(share))
            placed[share.job.priority] += share.accelerators
            left[share.job.id] -= share.copies
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


def _as_merged(items: Sequence[Assignment], jobs: dict[str, Job]) -> tuple[Assignment, ...]:
    """Parts told in what `merged` made of their replicas."""
    return tuple(
        replace(
            item,
            parts=tuple(
                replace(part, replicas=-(-part.replicas // jobs[item.job].together))
                for part in item.parts
            ),
        )
        for item in items
    )


def _reference(text: str) -> Violation:
    return Violation(ViolationKind.REFERENCE, text)


def _count(text: str) -> Violation:
    return Violation(ViolationKind.COUNT, text)


def _money(text: str) -> Violation:
    return Violation(ViolationKind.MONEY, text)
