"""One copy of one job in one pool, judged by every part of a constraint: the mask, the verifier's
check, the reason told, and the change that would help."""

from __future__ import annotations

import json
from dataclasses import replace

from broker.decide.case import build_case
from broker.decide.changes import advise, can_start
from broker.decide.explain import candidates
from broker.decide.problem_file import parse_problem
from broker.decide.queues import with_queues
from broker.decide.remaining import alone
from broker.decide.verify import verify
from broker.model.plan import Assignment, NodeFill, Plan, PlanStatus, Unplaced
from broker.model.problem import Problem
from federation.refusals import Refusal, RefusalCode
from tests.unit.decide.problems import Document, a_problem


def problem_of(**changes: object) -> Problem:
    """A problem in the public form with some keys changed."""
    return parse_problem(json.dumps(a_problem(**changes)))


def options_of(problem: Problem) -> set[tuple[str, str]]:
    """The (job, pool) that are options, by the masks."""
    case = build_case(problem)
    pairs = zip(case.options.class_index.tolist(), case.options.pool_index.tolist(), strict=True)
    return {(case.classes[k].job.id, case.problem.pools[p].name) for k, p in pairs}


def forced(problem: Problem, job_id: str = "j0", pool_name: str = "p0", copies: int = 1) -> Plan:
    """Copies of a job in a pool whatever is wrong with that, on its first nodes; all else waits."""
    job = next(job for job in problem.jobs if job.id == job_id)
    refusal = Refusal(RefusalCode.NOT_CHOSEN, pool_name)
    left = {item.id: item.count for item in problem.jobs}
    left[job_id] -= copies
    return Plan(
        status=PlanStatus.FLOOR,
        objective_usd=0.0,
        bound_usd=None,
        cost_usd=0.0,
        assignments=(Assignment(job_id, pool_name, copies),),
        unplaced=tuple(Unplaced(name, n, refusal) for name, n in left.items() if n),
        fills=(NodeFill(pool_name, 0, copies * job.replicas, ((job_id, 1),)),),
    )


def violations_of(problem: Problem, pool_name: str = "p0", copies: int = 1) -> str:
    """What the verifier says of copies of the first job forced into a pool."""
    plan = forced(problem, problem.jobs[0].id, pool_name, copies)
    return "\n".join(violation.text for violation in verify(problem, plan))


def reason_for(problem: Problem, pool_name: str = "p0") -> Refusal | None:
    """The first reason told against the first job in a pool; None when it could start there."""
    table = candidates(problem, problem.jobs[0])
    found = next(item for item in table if item.pool == pool_name)
    return found.refusals[0] if found.refusals else None


def change_for(problem: Problem, pool_name: str = "p0") -> str:
    """The change that starts the first job in a pool; deciding confirms it."""
    pool = next(pool for pool in with_queues(problem).pools if pool.name == pool_name)
    one = alone(problem, problem.jobs[0], pool)
    assert not can_start(one)
    advice = advise(one)
    assert advice is not None
    return " and ".join(change.text for change in advice.changes)


def with_pool(problem: Problem, **changes: object) -> Problem:
    """The first pool with fields that the public form does not have."""
    pool = replace(problem.pools[0], **changes)  # type: ignore[arg-type]
    return replace(problem, pools=(pool, *problem.pools[1:]))


def two_clusters(**changes: object) -> list[Document]:
    """A cluster in each region; `changes` are for the second."""
    return [{"name": "c0", "region": "east"}, {"name": "c1", "region": "west", **changes}]
