"""Two plans for the same jobs, told as rows: what moved, what it cost before and costs after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from broker.control.change_words import reason_words
from broker.decide.later_starts import pool_of
from broker.decide.objective import cost_terms
from broker.decide.terms import Geography
from broker.model.plan import Assignment, Plan
from broker.model.problem import Job, Problem

ROWS_MAX = 500
Two = tuple[Problem, Problem]


@dataclass(frozen=True, slots=True)
class Subject:
    """A job that was decided twice. `policies` are the labels before and after, `ran_in` the
    clusters it runs or ran in, `affected` whether its own rules differ."""

    id: str
    name: str
    tenant: str
    state: str
    priority: int
    created_ms: int
    copies: int
    ran_in: str
    policies: tuple[tuple[str, ...], tuple[str, ...]]
    affected: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of it; amounts are None where nothing was decided. `rows` holds the jobs that
    moved, the greatest difference in cost first."""

    jobs: int = 0
    affected: int = 0
    moved: int = 0
    placed: tuple[int, int] | None = None
    cost_usd: tuple[float, float] | None = None
    rows: tuple[dict[str, Any], ...] = ()

    def plus(self, other: Compared) -> Compared:
        """Both together; `jobs` and `affected` stay, for they count the whole from the start."""
        placed, cost = self.placed or (0, 0), self.cost_usd or (0.0, 0.0)
        more_placed, more_cost = other.placed or (0, 0), other.cost_usd or (0.0, 0.0)
        return replace(
            self,
            moved=self.moved + other.moved,
            placed=(placed[0] + more_placed[0], placed[1] + more_placed[1]),
            cost_usd=(cost[0] + more_cost[0], cost[1] + more_cost[1]),
            rows=_greatest([*self.rows, *other.rows]),
        )

    def for_each(self, subjects: Sequence[Subject]) -> Compared:
        """The comparison of one copy of one job, counted for jobs like it."""
        copies = sum(subject.copies for subject in subjects)
        placed, cost = self.placed or (0, 0), self.cost_usd or (0.0, 0.0)
        rows = [_row(s, _times(row, s.copies)) for row in self.rows for s in subjects]
        return Compared(
            jobs=len(subjects),
            affected=len(subjects),
            moved=len(rows),
            placed=(placed[0] * copies, placed[1] * copies),
            cost_usd=(cost[0] * copies, cost[1] * copies),
            rows=_greatest(rows),
        )


def compare(
    subjects: Sequence[Subject], problems: Two, plans: tuple[Plan, Plan]
) -> Compared:
    """What differs between two plans for the same jobs."""
    before = _Placings(problems[0], plans[0])
    after = _Placings(problems[1], plans[1])
    rows = []
    for subject in subjects:
        first, second = before.of(subject), after.of(subject)
        if first["places"] != second["places"]:
            rows.append(_row(subject, {"before": first, "after": second}))
    return Compared(
        jobs=len(subjects),
        affected=sum(subject.affected for subject in subjects),
        moved=len(rows),
        placed=(before.placed, after.placed),
        cost_usd=(plans[0].cost_usd, plans[1].cost_usd),
        rows=_greatest(rows),
    )


def summary(compared: Compared) -> dict[str, Any]:
    """The figures of a comparison, as the API shows them."""
    placed, cost = compared.placed, compared.cost_usd
    return {
        "jobs": compared.jobs,
        "affected": compared.affected,
        "moved": compared.moved,
        "placed_before": placed[0] if placed else None,
        "placed_after": placed[1] if placed else None,
        "cost_usd_before": cost[0] if cost else None,
        "cost_usd_after": cost[1] if cost else None,
        "difference_usd": cost[1] - cost[0] if cost else None,
    }


class _Placings:
    """Where a plan puts each job, and what that costs."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self._where = Geography(problem)
        self._pools = {pool.name: pool for pool in problem.pools}
        self._jobs = {job.id: job for job in problem.jobs}
        self._given: dict[str, list[Assignment]] = {}
        for item in plan.assignments:
            self._given.setdefault(item.job, []).append(item)
        self._why = {left.job: reason_words(left.refusal.text) for left in plan.unplaced}
        self.placed = sum(assignment.count for assignment in plan.assignments)

    def _copy_usd(self, job: Job, item: Assignment) -> float:
        return cost_terms(self._where, job, pool_of(self._pools[item.pool], item)).total_usd

    def of(self, subject: Subject) -> dict[str, Any]:
        """The places of a job, their cost, and why some of it waits."""
        given = sorted(self._given.get(subject.id, ()), key=lambda item: item.place)
        job = self._jobs.get(subject.id)
        if job is None:
            return {"places": [], "cost_usd": None, "waits": "not there"}
        cost = sum(
            item.count * self._copy_usd(job, item) for item in given
        )
        return {
            "places": [_place(item, self._pools[item.pool].cluster) for item in given],
            "cost_usd": cost if given else None,
            "waits": self._why.get(subject.id),
        }


def _place(item: Assignment, cluster: str) -> dict[str, Any]:
    place = {
        "cluster": cluster,
        "pool": item.pool.removeprefix(f"{cluster}/"),
        "copies": item.count,
    }
    if item.queued:
        place["queued"] = True
    return {**place, "start_h": item.start_h} if item.start_h else place


def _row(subject: Subject, sides: dict[str, Any]) -> dict[str, Any]:
    before, after = sides["before"], sides["after"]
    both = before["cost_usd"] is not None and after["cost_usd"] is not None
    return {
        "job": subject.id,
        "name": subject.name,
        "tenant": subject.tenant,
        "state": subject.state,
        "copies": subject.copies,
        "ran_in": subject.ran_in,
        "affected": subject.affected,
        "policies_before": list(subject.policies[0]),
        "policies_after": list(subject.policies[1]),
        "before": before,
        "after": after,
        "difference_usd": after["cost_usd"] - before["cost_usd"] if both else None,
    }


def _times(row: dict[str, Any], copies: int) -> dict[str, Any]:
    return {side: _side_times(row[side], copies) for side in ("before", "after")}


def _side_times(side: dict[str, Any], copies: int) -> dict[str, Any]:
    cost = side["cost_usd"]
    return {
        "places": [{**place, "copies": place["copies"] * copies} for place in side["places"]],
        "cost_usd": None if cost is None else cost * copies,
        "waits": side["waits"],
    }


def _greatest(rows: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    def size(row: dict[str, Any]) -> tuple[bool, float, str]:
        difference = row["difference_usd"]
        return (difference is not None, -abs(difference or 0.0), row["job"])

    return tuple(sorted(rows, key=size)[:ROWS_MAX])
