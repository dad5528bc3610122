"""What is kept, for whom, for how long, and what is left for others meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker.decide.admission.admit import Rank, Scene, Standing, admit
from broker.decide.admission.holds import Hold, HoldWhy, room_at_ms, set_aside, shape_of
from broker.decide.admission.keeping import (
    SLACK_S,
    Lost,
    after_use,
    for_claims,
    for_lost,
    kept_on,
    next_gang,
)
from broker.decide.admission.making_room import Stop
from broker.decide.admission.wishes import Wish, places
from broker.model.admission import AdmissionRules
from broker.model.problem import NodeGroup, Pool
from tests.unit.decide.admission.scenes import pool, running, scene, wish

RULES = AdmissionRules(patience_s=60)
GANG = wish("g", 1, 8, replicas=2, waited_s=100, id="gang")
HOUR_MS = 3_600_000


def hold(for_: Wish = GANG, **changes: Any) -> Hold:
    job = for_.job
    usual = Hold(
        shape_of(job), "near/h100", job.priority, job.replicas, job.accelerators_per_replica,
        HoldWhy.GANG, 0, HOUR_MS, HOUR_MS, model="H100",
    )  # fmt: skip
    return replace(usual, **changes)


def free(pools: tuple[Pool, ...]) -> int:
    return sum(g.count * g.free_accelerators for p in pools for g in p.nodes)


def due(seen: Scene, holds: tuple[Hold, ...] = (), rules: AdmissionRules = RULES) -> Hold | None:
    found = admit(seen, Standing(holds=holds), rules)
    left = {index: each.job.count for index, each in enumerate(seen.wishes)}
    return next_gang(seen, found, left, holds, rules)


def test_the_freest_nodes_are_kept_and_no_more_than_needed() -> None:
    nodes = (NodeGroup(1, 8), NodeGroup(1, 3), NodeGroup(2, 1), NodeGroup(4, 0))
    kept = set_aside([pool(nodes=nodes)], [hold()], [GANG])
    assert free(kept.parts) == 11
    assert free(kept.pools) == 2
    assert not kept.ready


def test_once_there_is_room_it_is_the_jobs_turn() -> None:
    seen = scene([wish("a", 100), GANG], [pool(free=16)])
    found = admit(seen, Standing(holds=(hold(),)), RULES)
    assert found.kept.ready == {0: 1} and not found.kept.parts
    assert (1, Rank.HELD, 1) in {(e.wish, e.rank, e.copies) for e in found.entries}
    assert found.granted == (0, 1)


def test_nothing_is_given_back_for_a_job_that_may_not_start_yet() -> None:
    kept = set_aside([pool(free=16)], [hold(job="other")], [wish("a", 100)])
    assert free(kept.pools) == 0 and free(kept.parts) == 16


def test_room_comes_as_runtimes_end() -> None:
    held = [running(f"r{n}-1", "a", 8, ends_ms=1000 * (n + 1)) for n in range(2)]
    assert room_at_ms(pool(free=0), GANG.job, held, 5) == 2000
    assert room_at_ms(pool(free=8), GANG.job, held, 5) == 1000
    assert room_at_ms(pool(free=16), GANG.job, held, 5) == 5
    assert room_at_ms(pool(free=0), GANG.job, held[:1], 5) is None


def test_a_gang_that_waited_gets_something_kept_until_what_runs_is_over() -> None:
    held = [running(f"r{n}-1", "a", 8, ends_ms=HOUR_MS) for n in range(2)]
    found = due(scene([GANG], [pool(free=0)], running=held))
    assert found is not None
    assert (found.pool, found.room_ms) == ("near/h100", HOUR_MS)
    assert found.until_ms == HOUR_MS + SLACK_S * 1000


def test_nothing_is_kept_without_need() -> None:
    held = [running(f"r{n}-1", "a", 8, ends_ms=HOUR_MS) for n in range(2)]
    full = [pool(free=0)]
    assert due(scene([replace(GANG, waited_s=1)], full, running=held)) is None
    assert due(scene([replace(GANG, set_back=True)], full, running=held)) is None
    assert due(scene([GANG], [pool(free=16)])) is None
    assert due(scene([wish("a", 1, waited_s=100)], full, running=held)) is None
    short = replace(RULES, hold_max_s=60)
    assert due(scene([GANG], full, running=held), rules=short) is None


def test_what_one_end_makes_room_for_needs_nothing_kept() -> None:
    """Else turns are given away ahead of time, and shares follow what was due then."""
    pair = wish("b", 4, 2, waited_s=100, id="pair")
    full = [pool(free=0)]
    alike = [running(f"r{n}-1", "a", 2, ends_ms=HOUR_MS) for n in range(8)]
    assert due(scene([pair], full, running=alike)) is None
    small = [running(f"r{n}-1", "a", 1, ends_ms=HOUR_MS) for n in range(16)]
    found = due(scene([pair], full, running=small))
    assert found is not None and found.size == 2, "of pieces that come one by one"
    later = [running("r-1", "a", 2, ends_ms=2 * HOUR_MS)]
    found = due(scene([pair], full, running=small[:14] + later))
    assert found is not None and found.room_ms == HOUR_MS, "pieces are together sooner"


def test_more_is_kept_for_a_tenant_only_while_it_has_least_with_what_is_kept() -> None:
    held = [running(f"r{n}-1", "a", 8, ends_ms=HOUR_MS) for n in range(16)]
    wide = [pool(free=0, total=128)]
    two = wish("g", 2, 8, replicas=2, waited_s=100, id="gang")
    rivals = wish("b", 4, 8, replicas=2, waited_s=100, id="rival")
    assert due(scene([two], wide, running=held), holds=(hold(),)) is not None
    found = due(scene([two, rivals], wide, running=held), holds=(hold(),))
    assert found is not None and found.tenant == "b"


def test_never_more_than_half_of_a_model_is_kept() -> None:
    held = [running(f"r{n}-1", "a", 8, ends_ms=HOUR_MS) for n in range(4)]
    two = wish("g", 2, 8, replicas=2, waited_s=100, id="gang")
    assert due(scene([two], [pool(free=0, total=32)], running=held), holds=(hold(),)) is None


def test_a_tenant_with_more_than_others_that_wait_gets_nothing_kept() -> None:
    held = [running("r0-1", "g", 8), running("r1-1", "g", 8)]
    others = wish("a", 4, waited_s=100)
    assert due(scene([GANG, others], [pool(free=0)], running=held)) is None


def test_a_gang_no_pool_is_large_enough_for_gets_nothing_kept() -> None:
    huge = wish("g", 1, 8, replicas=3, waited_s=100)
    assert due(scene([huge], [pool(free=0)], running=[running("r-1", "a", 16)])) is None


def test_what_is_kept_ends_in_time_and_is_not_begun_again_at_once() -> None:
    kept, in_vain = kept_on([hold()], [GANG], HOUR_MS - 1)
    assert kept == [hold()] and not in_vain
    kept, in_vain = kept_on([hold()], [GANG], HOUR_MS)
    assert not kept and in_vain == {"gang": HOUR_MS}
    kept, in_vain = kept_on([hold()], [wish("a")], 1)
    assert not kept and not in_vain


def test_what_is_kept_counts_as_its_tenants() -> None:
    """While something is kept for a gang its tenant gets no other turns before those with less."""
    mine = wish("g", 8, id="small")
    seen = scene([GANG, mine, wish("a", 8)], [pool(free=10, total=32)])
    with_hold = admit(seen, Standing(holds=(hold(),)), RULES)
    without = admit(seen, Standing(), RULES)
    assert with_hold.granted[1] < without.granted[1]


def test_a_hold_is_used_up_by_what_was_placed() -> None:
    seen = scene([GANG], [pool(free=16)])
    found = admit(seen, Standing(holds=(hold(copies=2),)), RULES)
    named = [(f"k{n}", entry) for n, entry in enumerate(found.entries)]
    assert [h.copies for h in after_use([hold(copies=2)], seen, named, {})] == [1]
    assert after_use([hold()], seen, named, {}) == []
    assert after_use([hold()], seen, named, {"k0": 1}) == [hold()]


def test_lesson_28_a_lost_gang_keeps_its_place_for_a_bounded_time() -> None:
    lost = Lost(GANG.job, "near/h100", 1000)
    (found,) = for_lost([lost], 2000, RULES)
    assert (found.job, found.until_ms) == ("gang", 1000 + 300_000)
    assert not for_lost([lost], 1000 + 300_000, RULES)
    assert not for_lost([lost], 2000, replace(RULES, recovery_s=0))


def test_what_is_stopped_for_somebody_is_kept_for_that_one() -> None:
    wanted = wish("a", 3, 4, id="wanted")
    stops = [
        Stop(running(f"r{n}-1", "b", 4, grace_s=90), 0, "near/h100", "lent") for n in range(2)
    ]
    (found,) = for_claims(stops, scene([wanted]), 1000)
    assert (found.copies, found.why) == (2, HoldWhy.CLAIM)
    assert found.until_ms == 1000 + 90_000 + SLACK_S * 1000
    kept = set_aside([pool(free=2)], [found], [wanted])
    assert free(kept.pools) == 0 and places(kept.parts[0].nodes, 4) == 0
