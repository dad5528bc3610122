"""Put a plan beside a simpler one of the same problem: what it costs to place as much, what could
be saved at most, and whether the simpler one is better after all."""

from __future__ import annotations

import math

import numpy as np

from broker.decide.case import Case
from broker.decide.columns import Columns
from broker.decide.meter import Meter
from broker.decide.objective import cost_terms
from broker.decide.options import Integers
from broker.decide.prices_lp import LpFailed
from broker.decide.relaxation import Relaxation
from broker.decide.terms import Geography
from broker.model.plan import Plan
from broker.model.problem import Mode, Problem

_ROUNDS = 12
_LEAST_COST_CPU_S = 40.0
"""CPU seconds that the bound on the cost may take: it is no part of any decision."""


def placed_value(problem: Problem, plan: Plan) -> float:
    """USD of what is placed in scalar mode, else accelerators."""
    values = problem.objective.value_usd_per_accelerator
    return sum(values.get(level, 1.0) * count for level, count in plan.placed.items())


def is_better(problem: Problem, one: Plan, other: Plan) -> bool:
    """Whether one plan has the better objective, rounding apart."""
    weights = problem.objective.weight_per_accelerator
    if problem.objective.mode is Mode.PLACE_FIRST:
        for level in sorted({*one.placed, *other.placed}, reverse=True):
            more = one.placed.get(level, 0) - other.placed.get(level, 0)
            if more and weights.get(level, 1.0) > 0:
                return more > 0
    rounding = 1e-6 + 1e-9 * abs(other.objective_usd)
    return one.objective_usd > other.objective_usd + rounding


def cost_for_as_much(problem: Problem, plan: Plan, other: Plan) -> float | None:
    """USD of the plan once it has let go of what it places more than the other, by value, the
    dearest for its value first. What is left still fits. None where values do not say what is more
    (place_first), where it places less, or where copies join queues."""
    if problem.objective.mode is not Mode.SCALAR or any(a.waits for a in plan.assignments):
        return None
    spare = placed_value(problem, plan) - placed_value(problem, other)
    if spare < 0:
        return None
    values = problem.objective.value_usd_per_accelerator
    where = Geography(problem)
    jobs = {job.id: job for job in problem.jobs}
    pools = {pool.name: pool for pool in problem.pools}
    found: list[tuple[float, float, float, int]] = []
    for item in plan.assignments:
        job = jobs[item.job]
        usd = cost_terms(where, job, pools[item.pool]).total_usd
        value = values[job.priority] * job.gang_accelerators
        found.append((usd / value if value > 0 else math.inf, value, usd, item.count))
    cost = plan.cost_usd
    for _, value, usd, count in sorted(found, reverse=True):
        copies = count if value == 0 else min(count, int(spare / value + 1e-9))
        spare -= copies * value
        cost -= copies * usd
    return cost


def least_cost(case: Case, plan: Plan) -> float | None:
    """No plan that places as much of every priority as this one costs less (USD); None where no
    bound was found or work would be lost. By the relaxation, with what is placed held."""
    if case.lost_work_usd:
        return None
    rows = Relaxation(case, case.priorities)
    rows.hold(plan.placed)
    sizes = (len(case.classes), len(case.options), len(case.problem.pools))
    meter = Meter(_LEAST_COST_CPU_S, None, sizes)
    try:
        columns = Columns(rows, meter, meter.left_s)
        if columns.sampled:
            return None
        start = _used(case, plan)
        priced = columns.run(-case.options.cost_usd, start, meter.left_s, rounds=_ROUNDS)
    except LpFailed:
        return None
    return None if priced is None else max(0.0, -priced.bound)


def _used(case: Case, plan: Plan) -> Integers:
    """The options that a plan uses."""
    jobs = {job.id: index for index, job in enumerate(case.problem.jobs)}
    pools = {pool.name: index for index, pool in enumerate(case.problem.pools)}
    class_of = {m: k for k, item in enumerate(case.classes) for m in item.members}
    wanted = {(class_of[jobs[item.job]], pools[item.pool]) for item in plan.assignments}
    pairs = zip(case.options.class_index.tolist(), case.options.pool_index.tolist(), strict=True)
    return np.array([o for o, pair in enumerate(pairs) if pair in wanted], dtype=np.int64)
