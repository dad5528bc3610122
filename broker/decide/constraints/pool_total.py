"""What the constraints on figures of a whole pool have in common."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from broker.decide.constraints.constraint import Beside, Placed
from broker.decide.terms import within
from broker.model.problem import Job
from federation.refusals import Refusal, RefusalCode


def over(
    placed: Placed,
    limits: Mapping[str, float | None],
    needed: Callable[[Job], float],
    unit: str,
) -> Iterator[str]:
    """Pools whose copies need more than the limit (None = none), by what a copy needs."""
    used: dict[str, list[float]] = defaultdict(list)
    for (job_id, pool_name), count in placed.copies.items():
        used[pool_name].append(count * needed(placed.jobs[job_id]))
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
