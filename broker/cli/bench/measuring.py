"""Decide one made-up problem in several ways and measure each: in a process of its own, so that
memory and libraries of one do not count for another.

Run as `python -m broker.cli.bench.measuring`: a JSON task on standard input, JSON rows on standard
output.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

from broker.cli.bench.instances import Document, Size, an_instance, changed
from broker.decide.baselines import Baseline, decide_simply
from broker.decide.decision import Budget, decide
from broker.decide.problem_file import problem_from_json
from broker.model.plan import Plan
from broker.model.problem import Problem
from broker.model.warm import Warm

CHANGED_SHARE = 0.02
"""Of the jobs, those that are others when the decision is repeated warm."""


@dataclass(frozen=True, slots=True)
class Task:
    """One instance (`file` instead of `size` for one that lies in a file), and the budgets in CPU
    seconds."""

    size: Size | None
    seed: int
    mode: str
    budgets_s: tuple[float, ...]
    warm_budget_s: float
    file: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """One decision. `cost_share` is its cost against that of the first baseline, less one;
    `placed_share` the same for what it placed (by value, or accelerators where nothing has one);
    `moved` the share of copies of jobs still there that a warm decision moved. None = not known.
    `peak_mib` is the largest resident memory of the process so far."""

    how: str
    status: str
    cpu_s: float
    objective_usd: float
    bound_usd: float | None
    gap: float | None
    cost_usd: float
    cost_share: float
    placed_share: float
    moved: float | None
    peak_mib: float
    notes: tuple[str, ...] = ()


def measure(task: Task) -> list[Measured]:
    """Baselines, then a cold decision for each budget, then a warm one after a few changes."""
    document = _document(task)
    problem = problem_from_json(document)
    gc.freeze()
    rows: list[Measured] = []
    first: Plan | None = None
    for baseline in Baseline:
        before = _cpu_s()
        plan = decide_simply(problem, baseline)
        first = first or plan
        rows.append(_row(baseline.value, plan, _cpu_s() - before, problem, first, None))
    cold: Plan | None = None
    for budget_s in task.budgets_s:
        before = _cpu_s()
        cold = decide(problem, Budget(cpu_s=budget_s))
        how = f"cold, budget {budget_s:g} s"
        rows.append(_row(how, cold, _cpu_s() - before, problem, first or cold, None))
    if cold is None or cold.prices is None:
        return rows
    later = problem_from_json(changed(document, CHANGED_SHARE, task.seed))
    later = replace(later, warm=Warm(cold.assignments, cold.prices))
    fifo = decide_simply(later, Baseline.FIFO)
    before = _cpu_s()
    warm = decide(later, Budget(cpu_s=task.warm_budget_s))
    spent = _cpu_s() - before
    how = f"warm, budget {task.warm_budget_s:g} s"
    rows.append(_row(how, warm, spent, later, fifo, _moved(cold, warm, later)))
    return rows


def _document(task: Task) -> Document:
    if task.size is not None:
        return an_instance(task.size, task.seed, task.mode)
    from broker.cli.plan_problem import read_problem_bytes

    document: Document = json.loads(read_problem_bytes(task.file))
    return document


def _row(
    how: str, plan: Plan, cpu_s: float, problem: Problem, first: Plan, moved: float | None
) -> Measured:
    placed, before = _placed(plan, problem), _placed(first, problem)
    return Measured(
        how=how,
        status=plan.status.value,
        cpu_s=round(cpu_s, 4),
        objective_usd=plan.objective_usd,
        bound_usd=plan.bound_usd,
        gap=plan.gap,
        cost_usd=plan.cost_usd,
        cost_share=plan.cost_usd / first.cost_usd - 1 if first.cost_usd else 0.0,
        placed_share=placed / before - 1 if before else 0.0,
        moved=moved,
        peak_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        notes=plan.notes,
    )


def _placed(plan: Plan, problem: Problem) -> float:
    values = problem.objective.value_usd_per_accelerator
    return sum(values.get(level, 1.0) * count for level, count in plan.placed.items())


def _moved(before: Plan, after: Plan, problem: Problem) -> float:
    """Share of the placed copies of jobs still there that are no longer where they were."""
    known = {job.id for job in problem.jobs}
    now = {(item.job, item.pool): item.count for item in after.assignments}
    kept = [item for item in before.assignments if item.job in known]
    copies = sum(item.count for item in kept)
    stayed = sum(min(item.count, now.get((item.job, item.pool), 0)) for item in kept)
    return (copies - stayed) / copies if copies else 0.0


def _cpu_s() -> float:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(w)[:2]) for w in who)


def task_to_json(task: Task) -> str:
    """A task as the process reads it."""
    return json.dumps(asdict(task))


def task_from_json(text: str) -> Task:
    """A task as `task_to_json` wrote it."""
    read: dict[str, Any] = json.loads(text)
    size = None if read["size"] is None else Size(**read["size"])
    return Task(**{**read, "size": size, "budgets_s": tuple(read["budgets_s"])})


if __name__ == "__main__":
    rows = measure(task_from_json(sys.stdin.read()))
    sys.stdout.write(json.dumps([asdict(row) for row in rows]))
