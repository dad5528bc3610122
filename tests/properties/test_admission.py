"""Whatever waits, runs and is free: turns are within what is free, go to who has least, and leave
nothing that somebody could use."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.decide.admission.admit import Rank, Scene, Standing, admit
from broker.decide.admission.quotas import Quota
from broker.decide.admission.wishes import Wish
from broker.model.admission import AdmissionRules
from tests.unit.decide.admission.scenes import pool, running, scene, wish

TENANTS = ("a", "b", "c")
SMALL = st.integers(0, 20)


@st.composite
def wishes(draw: st.DrawFn) -> list[Wish]:
    found = []
    for number in range(draw(st.integers(1, 8))):
        found.append(
            wish(
                draw(st.sampled_from(TENANTS)),
                draw(st.integers(1, 12)),
                draw(st.sampled_from((1, 2, 4, 8))),
                id=f"j{number}",
                priority=draw(st.integers(0, 1)),
                replicas=draw(st.integers(1, 2)),
                waited_s=draw(st.sampled_from((0.0, 1e6))),
                set_back=draw(st.booleans()),
            )
        )
    return found


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    held = [
        running(f"r{n}-1", draw(st.sampled_from(TENANTS)), draw(st.integers(1, 8)))
        for n in range(draw(st.integers(0, 5)))
    ]
    return scene(
        draw(wishes()),
        [pool(free=draw(st.integers(0, 48)), total=64)],
        running=held,
        weights={name: float(draw(st.integers(1, 5))) for name in TENANTS},
        quotas=[
            Quota(name, draw(st.none() | SMALL), draw(st.sampled_from(("", "lab"))), draw(SMALL))
            for name in TENANTS
        ],
        now_ms=1_000_000,
    )


@settings(max_examples=300, deadline=None)
@given(scenes())
def test_no_copy_is_lost_or_made_and_turns_fit(given_scene: Scene) -> None:
    found = admit(given_scene, Standing(), AdmissionRules())
    for index, each in enumerate(given_scene.wishes):
        copies = [e.copies for e in found.entries if e.wish == index]
        assert sum(copies) == each.job.count and all(c > 0 for c in copies)
    free = sum(g.count * g.free_accelerators for p in given_scene.pools for g in p.nodes)
    taken = sum(
        w.job.gang_accelerators * n
        for w, n in zip(given_scene.wishes, found.granted, strict=True)
    )
    assert taken <= free


@settings(max_examples=300, deadline=None)
@given(scenes())
def test_quotas_and_cohorts_hold_whatever_is_decided_within_the_limits(given_scene: Scene) -> None:
    found = admit(given_scene, Standing(), AdmissionRules())
    held = {name: 0 for name in TENANTS}
    for attempt in given_scene.running:
        held[attempt.tenant] += attempt.accelerators
    cohort = [q for q in given_scene.quotas if q.cohort and q.accelerators is not None]
    for quota in given_scene.quotas:
        if quota.accelerators is None:
            assert quota.tenant not in found.limits
            continue
        most = quota.accelerators + (quota.borrow or 0 if quota.cohort else 0)
        assert found.limits[quota.tenant] <= max(most - held[quota.tenant], 0)
    whole = sum(q.accelerators or 0 for q in cohort)
    after = sum(held[q.tenant] + found.limits[q.tenant] for q in cohort)
    before = sum(max(held[q.tenant], q.accelerators or 0) for q in cohort)
    assert after <= max(whole, before)


@settings(max_examples=300, deadline=None)
@given(scenes())
def test_nobody_who_could_have_a_turn_is_passed_over_for_one_with_more(given_scene: Scene) -> None:
    """A tenant left with copies that fit in what is left does not exist: turns go on until nothing
    fits, or quotas say stop."""
    found = admit(given_scene, Standing(), AdmissionRules())
    left = sum(g.count * g.free_accelerators for p in given_scene.pools for g in p.nodes)
    left -= sum(
        w.job.gang_accelerators * n
        for w, n in zip(given_scene.wishes, found.granted, strict=True)
    )
    for each, granted in zip(given_scene.wishes, found.granted, strict=True):
        if granted == each.job.count or each.set_back:
            continue
        gang = each.job.gang_accelerators
        fits = max(found.room.models(each.job, empty=False).values(), default=0)
        allowed = found.allowances.room(each.job.tenant)
        assert gang > left or fits < each.job.replicas or allowed < gang


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=6), st.integers(1, 8))
def test_equal_wishes_are_served_by_weight_to_within_a_copy(
    weights: list[int], size: int
) -> None:
    names = [f"t{n}" for n in range(len(weights))]
    found = admit(
        scene(
            [wish(name, 1000, size) for name in names],
            [pool(free=640, total=640, node=size)],
            weights=dict(zip(names, map(float, weights), strict=True)),
        ),
        Standing(),
        AdmissionRules(),
    )
    copies = 640 // size
    for granted, weight in zip(found.granted, weights, strict=True):
        due = copies * weight / sum(weights)
        assert abs(granted - due) <= 1 + 0.0025 * 640 / size


def test_the_order_of_tenants_and_their_names_change_nothing_for_a_tenant() -> None:
    """Renaming others, or listing them otherwise, leaves what one gets as it is."""
    mine = [wish("m", 100, id="mine")]
    others = [wish("x", 50, id="o1"), wish("y", 70, size=2, id="o2")]
    renamed = [wish("p", 50, id="o9"), wish("q", 70, size=2, id="o8")]
    def got(waiting: list[Wish]) -> int:
        found = admit(scene(waiting, [pool(free=30, total=64)]), Standing(), AdmissionRules())
        index = next(i for i, w in enumerate(waiting) if w.job.id == "mine")
        turns = [e.copies for e in found.entries if e.wish == index and e.rank is Rank.TURN]
        return sum(turns)

    assert got([*mine, *others]) == got([*mine, *renamed])
