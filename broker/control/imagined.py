"""A job that is not there, decided as the next cycle would: behind what waits, under quotas, fair
share, and what is kept for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker.control.admitting import Admitting, Course
from broker.control.build_problem import ProblemBuilder, Waiting, World, build
from broker.control.cycle import Decider
from broker.control.gaps import without
from broker.decide.admission.admit import Rank
from broker.model.plan import Assignment, Plan
from broker.model.problem import Job, Problem


@dataclass(frozen=True, slots=True)
class Imagined:
    """What would be decided: the problem of that one job, its plan, the CPU seconds it took, and
    what admission says of it (None where this replica does not lead: only the leader knows)."""

    problem: Problem
    plan: Plan
    cpu_s: float
    admission: dict[str, Any] | None = None


async def imagine(
    decider: Decider, admitting: Admitting | None, world: World, one: Waiting
) -> Imagined:
    """Decide one more job; nothing is remembered of it."""
    if admitting is None:
        problem = build(world, [one])
        decided = await decider(problem)
        return Imagined(problem, decided.plan, decided.cpu_s)
    builder = ProblemBuilder(world, [one])
    for _ in builder.pools():
        pass
    course, job = admitting.with_one_more(world, builder, one), builder.job(one)
    decided = await decider(course.problem)
    plan, pools, cpu_s = decided.plan, course.problem.pools, decided.cpu_s
    gap = course.gap(plan)
    if gap is not None:  # backfill in what is kept for others
        filled = await decider(gap.problem)
        cpu_s += filled.cpu_s
        if filled.plan.assignments:
            both = (*plan.assignments, *filled.plan.assignments)
            left = without(plan.unplaced, filled.plan)
            plan = replace(plan, assignments=both, unplaced=left, fills=())
            pools = builder.worked_out
    job = replace(job, spot_ok=any(part.spot_ok for part in course.problem.jobs))
    problem = replace(course.problem, jobs=(job,), pools=pools)
    merged = _merged(replace(plan, unplaced=course.explained(plan).unplaced), job)
    return Imagined(problem, merged, cpu_s, _told(course, job))


def _merged(plan: Plan, job: Job) -> Plan:
    """The plan with all parts of the job under its own name."""
    copies: Counter[Assignment] = Counter()
    for item in plan.assignments:
        copies[replace(item, job=job.id, count=1)] += item.count
    return replace(
        plan,
        assignments=tuple(
            replace(item, count=copies[item])
            for item in sorted(copies, key=lambda item: (item.place, repr(item.parts)))
        ),
        unplaced=tuple(replace(item, job=job.id) for item in plan.unplaced),
        fills=tuple(
            replace(fill, contents=tuple((job.id, n) for _, n in fill.contents))
            for fill in plan.fills
        ),
    )


def _told(course: Course, job: Job) -> dict[str, Any]:
    """`turn`: whether all its copies have their turn now; `share`: what its tenant holds and held
    over its share (None: nobody holds anything); `may_take`: accelerators that its quota, and what
    it may borrow, leave it."""
    ranks = {entry.rank for _, entry in course.named}
    ratios: Mapping[str, float] = course.admission.ratios
    return {
        "turn": Rank.BEYOND not in ranks,
        "share": ratios.get(job.tenant),
        "may_take": course.admission.limits.get(job.tenant),
    }
