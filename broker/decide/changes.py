"""The smallest change that would start a copy: found by undoing reasons one after another in the
problem of one job and one pool, and confirmed by deciding that problem again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.decide.against import Against
from broker.decide.case import build_case
from broker.decide.constraints import responsible
from broker.decide.constraints.constraint import Change, raised
from broker.decide.floors import greedy
from broker.decide.terms import rounded_up
from broker.model.problem import NodeGroup, Problem
from federation.refusals import Refusal, RefusalCode

_ROUNDS = 8
"""Most reasons that are undone one after another."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Changes that together start one copy in a pool; confirmed by deciding again. `added`: free
    places that are among them."""

    pool: str
    cluster: str
    changes: tuple[Change, ...]
    added: tuple[NodeGroup, ...] = ()

    @property
    def text(self) -> str:
        """One line for people."""
        what = " and ".join(change.text for change in self.changes)
        return f"{what}: then a copy starts in {self.pool} ({self.cluster})"

    @property
    def rank(self) -> tuple[int, int, float, str]:
        """Order of advice, the smallest first: few changes, then those a user can make alone."""
        worst = max(_EFFORT.index(change.code) for change in self.changes)
        return (len(self.changes), worst, sum(c.size for c in self.changes), self.pool)


def can_start(problem: Problem) -> bool:
    """Whether the one job of a problem gets at least one copy placed, by itself."""
    case = build_case(problem)
    return bool(greedy(case, range(len(case.classes))).counts.any())


def advise(problem: Problem) -> Advice | None:
    """What to change so that the one job of a problem with one pool starts there; None when no
    change known here is enough, or none is needed."""
    pool, changes = problem.pools[0], list[Change]()
    for _ in range(_ROUNDS):
        if can_start(problem):
            added = problem.pools[0].nodes[len(pool.nodes) :]
            found = Advice(pool.name, pool.cluster, tuple(changes), added)
            return found if changes else None
        refusal = Against(problem, problem.jobs[0]).pool(0)[0]
        changed = _undone(problem, refusal)
        if changed is None:
            return None
        problem, change = changed
        changes = [c for c in changes if c.what != change.what] + [change]
    return None


def _undone(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    constraint = responsible(refusal, problem.jobs[0], problem.pools[0])
    if constraint is not None:
        return constraint.undo(problem, refusal)
    return _value(problem, refusal) if refusal.code is RefusalCode.VALUE_BELOW_COST else None


def _value(problem: Problem, refusal: Refusal) -> tuple[Problem, Change] | None:
    job = problem.jobs[0]
    case = build_case(problem)
    if not len(case.options):
        return None
    node_usd = problem.objective.fragmentation_usd_per_node * job.replicas
    cost = float(case.options.cost_usd[0]) + node_usd
    needed = rounded_up(cost / job.gang_accelerators * (1 + 1e-6) + 1e-6)
    values = problem.objective.value_usd_per_accelerator
    before = values.get(job.priority, 0.0)
    objective = replace(
        problem.objective, value_usd_per_accelerator={**values, job.priority: needed}
    )
    what = f"value_usd_per_accelerator of priority {job.priority}"
    change = raised(refusal, what, before, needed)
    return replace(problem, objective=objective), change


_EFFORT = [
    RefusalCode.SPOT_NOT_ALLOWED,
    RefusalCode.OVER_BUDGET,
    RefusalCode.DEADLINE_TOO_SOON,
    RefusalCode.ROUND_TRIP_TOO_LONG,
    RefusalCode.REGION_NOT_ALLOWED,
    RefusalCode.TENANT_QUOTA,
    RefusalCode.CLUSTER_QUOTA,
    RefusalCode.VALUE_BELOW_COST,
    RefusalCode.NO_CPUS,
    RefusalCode.NO_MEMORY,
    RefusalCode.NO_CAPACITY,
    RefusalCode.REPLICA_TOO_LARGE,
    RefusalCode.GANG_TOO_LARGE,
    RefusalCode.WRONG_ACCELERATOR,
]
_EFFORT += [code for code in RefusalCode if code not in _EFFORT]
