"""Which slices of arrays get no further tasks, since others have their turn. Pure.

A slice starts its next task without being asked, so an array would keep what it once got for as
long as it has tasks, whoever came since. Where somebody of a lower level waits, the slices of those
above get no more tasks: nothing is stopped, each place is given back as a task ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.decide.admission.admit import Admission, Scene
from broker.decide.admission.running import Running


def yielding(scene: Scene, admission: Admission, left: Mapping[int, int]) -> frozenset[str]:
    """Attempt uids of slices that get no more tasks for now; `left`: copies of each wish (by
    index) that a decision left waiting. As many as are wanted, the highest level first."""
    slices = [a for a in scene.running if a.is_slice and not a.stopping]
    found: dict[str, Running] = {}
    shares = admission.shares
    for index in sorted(left, key=lambda i: (-scene.wishes[i].job.priority, i)):
        wish = scene.wishes[index]
        job = wish.job
        most = max(admission.room.models(job, empty=True).values(), default=0)
        if not slices or wish.set_back or most < job.replicas:
            continue
        bid = shares.bid(job.tenant, wish.amounts(next(iter(job.accelerators))))
        wanted = left[index] * job.gang_accelerators
        above = (
            a
            for a in slices
            if a.uid not in found
            and a.tenant != job.tenant
            and a.priority <= job.priority
            and a.accelerator in job.accelerators
            and shares.level(a.tenant) > bid
        )
        for each in sorted(above, key=lambda a: (-shares.level(a.tenant), a.accelerators, a.uid)):
            if wanted <= 0:
                break
            found[each.uid] = each
            wanted -= each.accelerators
    return frozenset(found)
