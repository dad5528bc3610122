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
    """Pools whose copies need more than the limit (None = none), by what a replica needs."""
    used: dict[str, list[float]] = defaultdict(list)
    limits = {pool.name: limit(pool) for pool in placed.problem.pools}
    for share in placed.shares:
        if share.pool.queue_of:
            continue
        if not share.parts:
            if limits[share.pool.name] is not None:
                replicas = share.copies * share.job.replicas
                used[share.pool.name].append(replicas * needed(share.job))
            continue
        for pool, replicas in share.replicas.items():
            if limits[pool] is not None:
                used[pool].append(share.copies * replicas * needed(share.job))
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
