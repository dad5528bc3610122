from hypothesis import given
from hypothesis import strategies as st

from federation.refusals import Refusal, RefusalCode
from regional_agent.session.ledger import Ledger, Part, Place, Pool, Request, Reservation

GIB = 2**30
H100 = Pool("h100", "H100", 4, 8, 64_000, 512 * GIB)


def reserve(ledger: Ledger, uid: str, **wanted: int) -> Ledger:
    made = ledger.reserve(uid, Request("h100", **wanted))
    assert not isinstance(made, Refusal), made
    return made[0]


def test_full_nodes_are_filled_first_so_that_empty_ones_stay_whole() -> None:
    ledger = reserve(Ledger((H100,)), "a-1", accelerators=4)
    ledger = reserve(ledger, "b-1", accelerators=2)
    ledger = reserve(ledger, "c-1", accelerators=8)
    places = [ledger.reservations[uid].places[0] for uid in ("a-1", "b-1", "c-1")]
    assert places == [
        Place("h100", 0, (0, 1, 2, 3)),
        Place("h100", 0, (4, 5)),
        Place("h100", 1, tuple(range(8))),
    ]


def test_a_gang_or_a_width_is_placed_whole_or_not_at_all() -> None:
    ledger = reserve(Ledger((H100,)), "a-1", accelerators=8, replicas=3)
    refused = ledger.reserve("b-1", Request("h100", accelerators=4, replicas=3))
    assert isinstance(refused, Refusal)
    assert refused.code == RefusalCode.CAPACITY_TAKEN
    assert "room for 2" in refused.text
    assert "b-1" not in ledger.reservations
    reserve(ledger, "c-1", accelerators=4, width=2)


def test_a_gang_that_shares_a_node_lies_on_one_however_many_have_room() -> None:
    ledger = Ledger((H100,))
    for uid in ("a-1", "b-1", "c-1", "d-1"):
        ledger = reserve(ledger, uid, accelerators=5)
    apart = ledger.reserve("e-1", Request("h100", accelerators=2, replicas=2))
    assert not isinstance(apart, Refusal) and len({p.node for p in apart[1].places}) == 2
    refused = ledger.reserve("e-1", Request("h100", accelerators=2, replicas=2, one_node=True))
    assert isinstance(refused, Refusal) and refused.code == RefusalCode.CAPACITY_TAKEN
    ledger = ledger.release("c-1")
    wanted = Request("h100", accelerators=2, replicas=2, width=2, one_node=True)
    made = ledger.reserve("e-1", wanted)
    assert not isinstance(made, Refusal)
    assert made[1].places == tuple(
        Place("h100", 2, cards) for cards in ((0, 1), (2, 3), (4, 5), (6, 7))
    )
    assert made[0].narrow("e-1", 1).release("e-1").free() == ledger.free()


def test_extras_are_counted_over_the_pool_and_come_back() -> None:
    pool = Pool("h100", "H100", 4, 8, 64_000, 512 * GIB, extras=(("fpga", 1), ("matlab", 5)))
    wanted = Request("h100", accelerators=1, replicas=2, extras=(("matlab", 2),))
    made = Ledger((pool,)).reserve("a-1", wanted)
    assert not isinstance(made, Refusal)
    ledger = made[0]
    assert ledger.extras(pool) == {"fpga": 1, "matlab": 1}
    refused = ledger.reserve("b-1", wanted)
    assert isinstance(refused, Refusal) and refused.code == RefusalCode.NO_EXTRAS
    assert "needs 4 matlab, has 1" in refused.text
    assert isinstance(ledger.reserve("b-1", Request("h100", extras=(("tpu", 1),))), Refusal)
    assert ledger.release("a-1").extras(pool) == dict(pool.extras)
    array = Request("h100", accelerators=1, width=5, extras=(("matlab", 1),))
    made = Ledger((pool,)).reserve("c-1", array)
    assert not isinstance(made, Refusal)
    assert made[0].narrow("c-1", 2).extras(pool)["matlab"] == 3


def test_cpus_and_memory_bind_as_cards_do() -> None:
    ledger = Ledger((H100,))
    assert isinstance(ledger.reserve("a-1", Request("h100", cpus_milli=64_001)), Refusal)
    assert isinstance(ledger.reserve("a-1", Request("h100", memory_bytes=513 * GIB)), Refusal)
    ledger = reserve(ledger, "a-1", cpus_milli=40_000, replicas=4)
    assert isinstance(ledger.reserve("b-1", Request("h100", cpus_milli=30_000)), Refusal)


def test_the_same_again_is_the_same_and_something_else_is_refused() -> None:
    ledger = reserve(Ledger((H100,)), "a-1", accelerators=2)
    again = ledger.reserve("a-1", Request("h100", accelerators=2))
    assert not isinstance(again, Refusal)
    assert again[0] is ledger
    other = ledger.reserve("a-1", Request("h100", accelerators=4))
    assert isinstance(other, Refusal) and other.code == RefusalCode.SPEC_MISMATCH
    missing = ledger.reserve("b-1", Request("a100"))
    assert isinstance(missing, Refusal) and missing.code == RefusalCode.UNSUPPORTED


def test_release_and_narrow_give_back() -> None:
    ledger = reserve(Ledger((H100,)), "a-1", accelerators=8, width=4)
    assert ledger.free()["h100"][0].free == 0
    ledger = ledger.narrow("a-1", 1)
    assert [(g.count, g.free) for g in ledger.free()["h100"]] == [(3, 8), (1, 0)]
    assert ledger.narrow("a-1", 3) == ledger
    assert ledger.release("a-1").release("a-1").free()["h100"][0].count == 4


def test_what_needs_nothing_fits_without_end() -> None:
    made = Ledger((H100,)).reserve("a-1", Request("h100", width=1000))
    assert not isinstance(made, Refusal)
    assert len(made[1].places) == 1000


def test_adopted_reservations_count_even_if_the_site_has_shrunk() -> None:
    smaller = Pool("h100", "H100", 1, 8, 64_000, 512 * GIB)
    held = Reservation(
        "a-1",
        Request("h100", accelerators=8, replicas=2),
        (Place("h100", 0, tuple(range(8))), Place("h100", 3, tuple(range(8)))),
    )
    ledger = Ledger((smaller,)).adopt(held)
    assert [(g.count, g.free) for g in ledger.free()["h100"]] == [(1, 0)]


REQUESTS = st.builds(
    Request,
    st.just("h100"),
    replicas=st.integers(1, 3),
    accelerators=st.integers(0, 8),
    cpus_milli=st.integers(0, 64_000),
    memory_bytes=st.integers(0, 512).map(lambda gib: gib * GIB),
    width=st.integers(1, 3),
)
STEPS = st.lists(st.tuples(st.integers(0, 9), st.one_of(REQUESTS, st.none())), max_size=40)


@given(STEPS)
def test_no_card_is_held_twice_and_what_is_free_is_what_is_not_held(
    steps: list[tuple[int, Request | None]],
) -> None:
    ledger = Ledger((H100,))
    for number, request in steps:
        uid = f"j{number}-1"
        if request is None:
            ledger = ledger.release(uid)
        else:
            made = ledger.reserve(uid, request)
            ledger = ledger if isinstance(made, Refusal) else made[0]
        held = [
            (place.node, card)
            for reservation in ledger.reservations.values()
            for place in reservation.places
            for card in place.accelerators
        ]
        assert len(held) == len(set(held))
        groups = ledger.free()["h100"]
        assert sum(g.count for g in groups) == H100.nodes
        assert sum(g.count * g.free for g in groups) == 32 - len(held)
        used = sum(r.request.cpus_milli * len(r.places) for r in ledger.reservations.values())
        assert sum(g.count * g.free_cpus_milli for g in groups) == 4 * 64_000 - used


def test_a_gang_gets_the_pools_and_racks_it_is_told() -> None:
    racks = Pool("h100", "H100", 4, 8, 64_000, 512 * GIB, racks=("r1", "r1", "r2", "r2"))
    ledger = Ledger((racks, Pool("h200", "H100", 1, 8, 64_000, 512 * GIB)))
    parts = (Part("h100", "r2", 2), Part("h200", "", 1))
    wanted = Request("h100", 3, 8, parts=parts)
    made = ledger.reserve("a-1", wanted)
    assert not isinstance(made, Refusal)
    ledger, held = made
    assert [(p.pool, p.node) for p in held.places] == [("h100", 2), ("h100", 3), ("h200", 0)]
    assert ledger.reserve("a-1", wanted) == made
    refused = ledger.reserve("b-1", Request("h100", 1, 1, parts=(Part("h100", "r2", 1),)))
    assert isinstance(refused, Refusal) and refused.code is RefusalCode.CAPACITY_TAKEN
    assert refused.subject == "pool h100 in r2"
    assert not isinstance(ledger.reserve("b-1", Request("h100", 2, 8)), Refusal)
    assert ledger.release("a-1").free() == Ledger(ledger.pools).free()
    twice = Request("h100", 4, 4, parts=(Part("h100", "r2", 2), Part("h100", "", 2)))
    again = Ledger(ledger.pools).reserve("c-1", twice)
    assert not isinstance(again, Refusal)
    cards = {(p.node, card) for p in again[1].places for card in p.accelerators}
    assert len(cards) == 16, "no card twice"


def test_nodes_of_their_own_are_as_many_as_replicas_and_lanes() -> None:
    ledger = reserve(Ledger((H100,)), "a-1", accelerators=7)
    made = ledger.reserve("b-1", Request("h100", accelerators=1, width=4, own_nodes=True))
    assert not isinstance(made, Refusal)
    assert sorted(place.node for place in made[1].places) == [0, 1, 2, 3]
    for request in (
        Request("h100", accelerators=1, width=5, own_nodes=True),
        Request("h100", accelerators=1, replicas=5, own_nodes=True),
        Request("h100", replicas=5, own_nodes=True),
    ):
        refused = ledger.reserve("c-1", request)
        assert isinstance(refused, Refusal) and refused.code is RefusalCode.CAPACITY_TAKEN
        assert "on nodes of their own" in refused.text and "room for 4" in refused.text
    light = ledger.reserve("d-1", Request("h100", replicas=4, own_nodes=True))
    assert not isinstance(light, Refusal) and len({p.node for p in light[1].places}) == 4
