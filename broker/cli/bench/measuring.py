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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from broker.cli.bench.comparing import (
    cost_for_as_much,
    is_better,
    least_cost,
    placed_value,
)
from broker.cli.bench.instances import Document, Size, an_instance, changed
from broker.decide.baselines import Baseline, decide_simply
from broker.decide.case import build_case
from broker.decide.decision import Budget, decide
from broker.decide.prepared import prepare
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
    savings: bool = False
    """Also look for what could be saved at most: takes longer than all decisions."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One decision. `cost_share` is its cost against that of the first baseline, less one;
    `placed_share` the same for what it placed (by value, or accelerators where nothing has one);
    `like_share` the cost share once it has let go of what it places more; `saving_share` what could
    be saved of its cost at most, by any plan that places as much of every priority.
    `moved` the share of copies of jobs still there that a warm decision moved. None = not known.
    `beaten_by` names a baseline that is better: there must be none. `peak_mib` is the largest
    resident memory of the process so far."""

    how: str
    status: str
    cpu_s: float
    objective_usd: float
    bound_usd: float | None
    gap: float | None
    cost_usd: float
    cost_share: float
    placed_share: float
    like_share: float | None
    saving_share: float | None
    moved: float | None
    beaten_by: str
    peak_mib: float
    notes: tuple[str, ...] = ()


def measure(task: Task) -> list[Measured]:
    """Baselines, then a cold decision for each budget, then a warm one after a few changes, which
    also takes over what the last cycle knew of pairs (`prepare`)."""
    document = _document(task)
    problem = problem_from_json(document)
    gc.freeze()
    rows: list[Measured] = []
    simple: dict[str, Plan] = {}
    for baseline in Baseline:
        before = _cpu_s()
        plan = decide_simply(problem, baseline)
        spent = _cpu_s() - before
        simple[baseline.value] = plan
        rows.append(_Row(problem, simple).of(baseline.value, plan, spent))
    cold: Plan | None = None
    for budget_s in task.budgets_s:
        before = _cpu_s()
        cold = decide(problem, Budget(cpu_s=budget_s))
        spent = _cpu_s() - before
        rows.append(_Row(problem, simple).of(f"cold, budget {budget_s:g} s", cold, spent))
    if cold is None or cold.prices is None:
        return rows
    later = problem_from_json(changed(document, CHANGED_SHARE, task.seed))
    later = replace(later, warm=Warm(cold.assignments, cold.prices))
    last = prepare(problem)
    before = _cpu_s()
    warm = decide(later, Budget(cpu_s=task.warm_budget_s), prepared=prepare(later, last))
    spent = _cpu_s() - before
    simple = {baseline.value: decide_simply(later, baseline) for baseline in Baseline}
    moved = _moved(cold, warm, later)
    how = f"warm, budget {task.warm_budget_s:g} s"
    rows.append(_Row(later, simple, moved).of(how, warm, spent))
    if task.savings:
        rows[-2] = replace(rows[-2], saving_share=_saving(problem, cold))
    return rows


def _document(task: Task) -> Document:
    if task.size is not None:
        return an_instance(task.size, task.seed, task.mode)
    from broker.cli.plan_problem import read_problem_bytes

    document: Document = json.loads(read_problem_bytes(task.file))
    return document


@dataclass(frozen=True, slots=True)
class _Row:
    """A problem and what the baselines make of it."""

    problem: Problem
    simple: Mapping[str, Plan]
    moved: float | None = None

    def of(self, how: str, plan: Plan, cpu_s: float) -> Measured:
        problem = self.problem
        first = next(iter(self.simple.values()), plan)
        placed, before = placed_value(problem, plan), placed_value(problem, first)
        like = cost_for_as_much(problem, plan, first)
        better = [name for name, other in self.simple.items() if is_better(problem, other, plan)]
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
            like_share=None if like is None or not first.cost_usd else like / first.cost_usd - 1,
            saving_share=None,
            moved=self.moved,
            beaten_by="" if how in self.simple else ", ".join(better),
            peak_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            notes=plan.notes,
        )


def _saving(problem: Problem, plan: Plan) -> float | None:
    least = least_cost(build_case(problem), plan)
    return None if least is None or not plan.cost_usd else 1 - least / plan.cost_usd


def _moved(before: Plan, after: Plan, problem: Problem) -> float:
    """Share of the placed copies of jobs still there that are no longer where they were."""
    known = {job.id for job in problem.jobs}
    now = {(item.job, item.pool, item.queued): item.count for item in after.assignments}
    kept = [item for item in before.assignments if item.job in known]
    copies = sum(item.count for item in kept)
    stayed = sum(min(item.count, now.get((item.job, item.pool, item.queued), 0)) for item in kept)
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
