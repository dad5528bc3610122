"""Why a class waits, in admission's words. Of others a tenant learns only totals."""

from __future__ import annotations

from collections.abc import Sequence

from broker.decide.admission.admit import Admission, Entry, Rank, Scene
from broker.model.plan import Plan, Unplaced
from federation.refusals import Refusal, RefusalCode

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
    scene: Scene, admission: Admission, named: Sequence[tuple[str, Entry]], plan: Plan
) -> tuple[Unplaced, ...]:
    """One reason for each class that waits: that of its copies that were nearest to a start."""
    left = {unplaced.job: unplaced for unplaced in plan.unplaced}
    first: dict[int, tuple[str, Entry]] = {}
    counts: dict[int, int] = {}
    for key, entry in named:
        if key in left:
            known = first.get(entry.wish)
            if known is None or entry.rank > known[1].rank:
                first[entry.wish] = key, entry
            counts[entry.wish] = counts.get(entry.wish, 0) + left[key].count
    return tuple(
        Unplaced(key, counts[index], _reason(scene, admission, entry, left[key].refusal))
        for index, (key, entry) in first.items()
    )


def _reason(scene: Scene, admission: Admission, entry: Entry, found: Refusal) -> Refusal:
    job = scene.wishes[entry.wish].job
    if found.code is RefusalCode.TENANT_QUOTA:
        return _borrowing(scene, admission, job.tenant) or found
    if found.code not in _FULL:
        return found
    if entry.rank is Rank.BEYOND:
        return _fair_share(admission, job.tenant)
    return found


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
