"""Why a class waits, in admission's words. Of others a tenant learns only totals."""

from __future__ import annotations

from collections.abc import Sequence

from broker.decide.admission.admit import Admission, Entry, Rank, Scene
from broker.decide.admission.holds import Hold
from broker.decide.admission.wishes import Wish, places
from broker.model.plan import Plan, Unplaced
from federation.refusals import Refusal, RefusalCode
from federation.units import format_utc

_FULL = frozenset(
    {
        RefusalCode.NO_CAPACITY,
        RefusalCode.NO_CPUS,
        RefusalCode.NO_MEMORY,
        RefusalCode.NOT_CHOSEN,
    }
)
"""What the decision says of a class for which others left no room."""


def reasons(
    scene: Scene,
    admission: Admission,
    known: tuple[Sequence[tuple[str, Entry]], Sequence[Hold]],
    plan: Plan,
) -> tuple[Unplaced, ...]:
    """One reason for each class that waits: that of its copies that were nearest to a start.
    `known`: entries by their name in the problem, and what is held."""
    named, holds = known
    left = {unplaced.job: unplaced for unplaced in plan.unplaced}
    first: dict[int, tuple[str, Entry]] = {}
    counts: dict[int, int] = {}
    for key, entry in named:
        if key in left:
            before = first.get(entry.wish)
            if before is None or entry.rank > before[1].rank:
                first[entry.wish] = key, entry
            counts[entry.wish] = counts.get(entry.wish, 0) + left[key].count
    return tuple(
        Unplaced(key, counts[index], _reason(scene, admission, holds, (entry, left[key].refusal)))
        for index, (key, entry) in first.items()
    )


def _reason(
    scene: Scene, admission: Admission, holds: Sequence[Hold], told: tuple[Entry, Refusal]
) -> Refusal:
    entry, found = told
    wish = scene.wishes[entry.wish]
    job = wish.job
    if found.code is RefusalCode.TENANT_QUOTA:
        return _borrowing(scene, admission, job.tenant) or found
    if found.code not in _FULL:
        return found
    mine = next((hold for hold in holds if hold.is_for(wish)), None)
    if mine is not None:
        return _being_kept(mine)
    if entry.rank is Rank.BEYOND:
        return _fair_share(admission, job.tenant)
    return _kept_for_others(admission, holds, wish) or found


def _being_kept(hold: Hold) -> Refusal:
    return Refusal(
        RefusalCode.CAPACITY_HELD,
        hold.pool,
        available=f"room for {hold.replicas} x {hold.size} is being kept for this job",
        advice=f"expected by {format_utc(hold.room_ms)}",
    )


def _kept_for_others(
    admission: Admission, holds: Sequence[Hold], wish: Wish
) -> Refusal | None:
    """Where a place the job could have is kept: for how long, not for whom."""
    parts = {part.name: part for part in admission.kept.parts}
    for pool in admission.room.open_to(wish.job):
        part = parts.get(pool.name)
        if part is None or places(part.nodes, wish.job.accelerators_per_replica) < 1:
            continue
        until_ms = max(hold.until_ms for hold in holds if hold.pool == pool.name)
        free = sum(group.count * group.free_accelerators for group in part.nodes)
        return Refusal(
            RefusalCode.CAPACITY_HELD,
            pool.name,
            available=f"{free} {pool.accelerator} are kept for a gang until {format_utc(until_ms)}",
            advice="a shorter max_runtime, so that it ends before, would let it start",
        )
    return None


def _borrowing(scene: Scene, admission: Admission, tenant: str) -> Refusal | None:
    """A quota that was reached in a cohort, where more might have been borrowed."""
    quota = next((q for q in scene.quotas if q.tenant == tenant and q.cohort), None)
    if quota is None or quota.accelerators is None:
        return None
    held = sum(a.accelerators for a in scene.running if a.tenant == tenant)
    borrowed = max(held - quota.accelerators, 0) + admission.allowances.lent.get(tenant, 0)
    if admission.allowances.lends_no_more(tenant):
        return Refusal(
            RefusalCode.BORROW_LIMIT,
            tenant,
            available=f"quota {quota.accelerators}, {borrowed} borrowed, no more allowed",
            advice="an end of its own jobs, or a higher borrowing limit",
        )
    return Refusal(
        RefusalCode.BORROW_LIMIT,
        tenant,
        available=f"quota {quota.accelerators}, {borrowed} borrowed; cohort {quota.cohort} has "
        "nothing left to lend",
        advice="an end of its own jobs, or of others that borrow in the cohort",
    )


def _fair_share(admission: Admission, tenant: str) -> Refusal:
    ratio = admission.ratios.get(tenant, 0.0)
    return Refusal(
        RefusalCode.FAIR_SHARE,
        tenant,
        needed="a turn",
        available=f"{ratio:.2f} of its share, others have less of theirs",
        advice="starts as its share falls behind, or as others leave theirs",
    )
