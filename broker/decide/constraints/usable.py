"""A pool that takes nothing at all: its reason is the caller's."""

from __future__ import annotations

from dataclasses import replace

from broker.decide.constraints.constraint import Change, Grain, PairConstraint
from broker.decide.pairs import Booleans, PairFigures
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool, Problem
from federation.refusals import Refusal, RefusalCode


def _mask(pairs: PairFigures) -> Booleans:
    found: Booleans = pairs.pools.usable[pairs.pool]
    return found


def _check(_where: Geography, _job: Job, pool: Pool) -> bool:
    return pool.unusable is None


def _refusal(_where: Geography, _job: Job, pool: Pool) -> Refusal:
    return pool.unusable or Refusal(RefusalCode.CAPACITY_UNKNOWN, pool.name)


def _undo(problem: Problem, refusal: Refusal) -> tuple[Problem, Change]:
    pools = tuple(replace(pool, unusable=None) for pool in problem.pools)
    return replace(problem, pools=pools), ended(refusal)


def ended(refusal: Refusal) -> Change:
    """The change that a caller's reason goes away."""
    what = refusal.advice or f"{refusal.code.replace('_', ' ')} of {refusal.subject} ends"
    return Change(refusal.code, what, "", "", 0.0)


USABLE = PairConstraint("usable", frozenset(), Grain.POOL, _mask, _check, _refusal, _undo)
