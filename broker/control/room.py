"""When there will be room for a job that waits, in each pool, if nothing changes. Pure.

A range: the early end takes running work for as long as it said it takes, the late end for as long
as it may run at most. Jobs ahead in the queue take their room first, for as long as they said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from broker.control.ends import ends_of
from broker.control.forecast import FULL, NEVER_MS, Forecast
from broker.model.jobs import Attempt
from broker.model.plan import Plan
from broker.model.problem import Job, Problem
from federation.refusals import RefusalCode


@dataclass(frozen=True, slots=True)
class Room:
    """When (UTC ms) room is expected in a pool, at the earliest and at the latest."""

    pool: str
    from_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Line:
    """A queue as a plan leaves it, and what runs. `said_s` knows how long a job said it takes."""

    problem: Problem
    plan: Plan
    attempts: Iterable[Attempt]
    said_s: Callable[[str], int | None]
    now_ms: int


def rooms(line: Line, job: Job, ahead: Mapping[str, int]) -> dict[str, Room]:
    """By pool when one copy of a job finds room behind the copies `ahead` of it; without the pools
    where none is in sight. Whether the job may go there is not looked at."""
    attempts = tuple(line.attempts)
    found: list[Forecast] = []
    for said_s in (line.said_s, _nothing_said):
        ends = ends_of(attempts, said_s, line.now_ms)
        forecast = Forecast(line.problem, line.plan, ends, line.now_ms, (), ahead)
        for _ in forecast.steps():
            pass
        found.append(forecast)
    need, by_pool = job.gang_accelerators, {}
    for pool in line.problem.pools:
        early, late = (forecast.room_ms(pool.name, need) for forecast in found)
        if early != NEVER_MS and late != NEVER_MS:
            by_pool[pool.name] = Room(pool.name, early, max(early, late))
    return by_pool


def ahead_of(line: Line, job: Job, own: Mapping[str, int]) -> dict[str, int]:
    """The copies that wait for room and stand before a job: those of a higher priority, and the
    older ones of its own; of the job it is like, as many as `own` says."""
    waiting = {u.job: u.count for u in line.plan.unplaced if u.refusal.code in FULL}
    order = {other.id: index for index, other in enumerate(line.problem.jobs)}
    mine = min((order[name] for name in own), default=len(order))
    ahead = {}
    for other in line.problem.jobs:
        if other.id in own:
            ahead[other.id] = own[other.id]
        elif other.priority > job.priority or (
            other.priority == job.priority and order[other.id] < mine
        ):
            ahead[other.id] = waiting.get(other.id, 0)
    return {name: count for name, count in ahead.items() if count}


def waits_for_room(code: RefusalCode) -> bool:
    """Whether a reason is that a place is merely taken."""
    return code in FULL


def _nothing_said(job: str) -> int | None:
    return None
