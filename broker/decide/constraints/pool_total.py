"""What the constraints on figures of a whole pool have in common."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator

from broker.decide.constraints.constraint import Beside, Placed
from broker.decide.terms import within
from broker.model.problem import Job, Pool
from federation.refusals import Refusal, RefusalCode


def over(
    placed: Placed,
    limit: Callable[[Pool], float | None],
    needed: Callable[[Job], float],
    unit: str,
) -> Iterator[str]:
    """Pools whose copies need more than the limit (None = none), by what a copy needs."""
    used: dict[str, list[float]] = defaultdict(list)
    limits: dict[str, float] = {}
    for share in placed.shares:
        pool = share.pool
        most = limit(pool)
        if most is not None and not pool.queue_of:
            limits[pool.name] = most
            used[pool.name].append(share.copies * needed(share.job))
    for name, uses in used.items():
        if not within(math.fsum(uses), limits[name]):
            yield f"{name}: {math.fsum(uses)} {unit} used of {limits[name]}"


def lacking(
    beside: Beside, code: RefusalCode, needed: float, left: float, unit: str
) -> Iterator[Refusal]:
    """What one more copy lacks of a figure, unless the pool is too small for it anyway."""
    if not beside.too_large and needed > left:
        advice = f"{needed - left:.4g} more {unit}"
        has = f"{max(0.0, left):.4g} {unit}"
        yield Refusal(code, beside.pool.name, f"{needed:g} {unit}", has, advice)
