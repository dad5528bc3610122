"""A plan in the public JSON form (docs/planning-problem.md)."""

from __future__ import annotations

from typing import Any

from broker.decide.warm_file import assignment_to_json, prices_to_json
from broker.model.plan import Plan
from broker.model.problem import Problem

LARGEST_PACKING = 2_000_000
"""Most `packing` entries that are written out."""


class AnswerTooLarge(ValueError):
    """A plan whose nodes cannot be listed one by one."""


def plan_to_json(problem: Problem, plan: Plan, cpu_s: float) -> dict[str, Any]:
    """The answer as a JSON object. `cpu_s` is the CPU time of the decision in seconds. Only pools
    given node by node, or charged by their packing, get a `packing`. Raises `AnswerTooLarge` when
    that would have more than `LARGEST_PACKING` entries."""
    answer: dict[str, Any] = {
        "version": 1,
        "status": plan.status.value,
        "objective_usd": plan.objective_usd,
        "bound_usd": plan.bound_usd,
        "gap": plan.gap,
        "placed": {str(level): plan.placed[level] for level in sorted(plan.placed)},
        "cost_usd": plan.cost_usd,
        "cpu_s": cpu_s,
        "assignments": [assignment_to_json(item) for item in plan.assignments],
        "unplaced": [
            {
                "job": item.job,
                "count": item.count,
                "code": item.refusal.code.value,
                "text": item.refusal.text,
            }
            for item in plan.unplaced
        ],
    }
    if plan.prices is not None:
        answer["prices"] = prices_to_json(plan.prices)
    per_node = {pool.name for pool in problem.pools if pool.per_node}
    shown = per_node | set(plan.charged_as_packed)
    if shown:
        answer["packing"] = _packing(plan, shown)
    return answer


def _packing(plan: Plan, pools: set[str]) -> list[dict[str, Any]]:
    fills = [fill for fill in plan.fills if fill.pool in pools]
    entries = sum(fill.nodes * len(fill.contents) for fill in fills)
    if entries > LARGEST_PACKING:
        raise AnswerTooLarge(
            f"the packing would have {entries} entries, over {LARGEST_PACKING}: "
            "give these pools with free_nodes"
        )
    return [
        {"job": job, "pool": fill.pool, "node": node, "replicas": replicas}
        for fill in fills
        for node in range(fill.first_node, fill.first_node + fill.nodes)
        for job, replicas in fill.contents
    ]
