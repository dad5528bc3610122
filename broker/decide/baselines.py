"""What simpler schedulers would decide: to compare with, on the same problem, through the same
verifier."""

from __future__ import annotations

from enum import StrEnum

from broker.decide.case import build_case
from broker.decide.decision import NoVerifiedPlan
from broker.decide.finish import make_candidate
from broker.decide.floors import floor_ways, walked
from broker.decide.plans import make_plan
from broker.decide.verify import verify
from broker.model.plan import Plan, PlanStatus
from broker.model.problem import Problem


class Baseline(StrEnum):
    """By priority, then: the oldest job first, each copy to the cheapest pool that takes it; the
    biggest gang first, likewise; the oldest job first, each copy to the first cluster of the list
    that admits it."""

    FIFO = "fifo cheapest first"
    BIG_FIRST = "big gangs first"
    FIRST_CLUSTER = "first cluster that admits"


def decide_simply(problem: Problem, baseline: Baseline) -> Plan:
    """The plan of a baseline, verified. Raises `NoVerifiedPlan`, for a fault of ours only."""
    case = build_case(problem)
    ways = dict(zip(Baseline, floor_ways(case), strict=True))
    floor = walked(case, ways[baseline])
    candidate = make_candidate(case, floor.counts, floor.packings(), None)
    if candidate is None:
        raise NoVerifiedPlan("a greedy plan could not be put on nodes")
    plan = make_plan(case, candidate, PlanStatus.FLOOR, None, ())
    violations = verify(problem, plan)
    if violations:
        raise NoVerifiedPlan(violations[0].text)
    return plan
