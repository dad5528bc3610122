"""The ledger against what the site says: nothing counted twice, nothing of others given away."""

from __future__ import annotations

from regional_agent.session.ledger import Ledger, Pool, Request
from regional_agent.session.resettle import NodeSeen, SiteSeen, resettle

GIB = 2**30
POOL = Pool("main-h100", "H100", 2, 8, 64_000, 512 * GIB)


def seen(*nodes: NodeSeen, **rest: object) -> SiteSeen:
    return SiteSeen((POOL,), {POOL.name: nodes}, **rest)  # type: ignore[arg-type]


def holding(uid: str, cards: int, replicas: int = 1, width: int = 1) -> Ledger:
    request = Request(POOL.name, replicas, cards, 1000, GIB, width)
    made = Ledger((POOL,)).reserve(uid, request)
    assert isinstance(made, tuple)
    return made[0]


def free(ledger: Ledger) -> list[int]:
    return sorted(g.free for g in ledger.groups(POOL) for _ in range(g.count))


def test_what_others_hold_is_not_free() -> None:
    made = resettle(Ledger((POOL,)), seen(NodeSeen(3, 8_000, 9 * GIB), NodeSeen()))
    assert free(made) == [5, 8]
    refused = made.reserve("a-1", Request(POOL.name, 2, 8))
    assert not isinstance(refused, tuple)


def test_a_running_attempt_counts_once_and_where_it_is() -> None:
    ledger = holding("a-1", 4)
    told = seen(NodeSeen(), NodeSeen(4, 1_000, GIB), running={"a-1": (((POOL.name, 1),),)})
    made = resettle(ledger, told)
    assert free(made) == [4, 8]
    assert made.reservations["a-1"].places[0].node == 1
    assert free(made.release("a-1")) == [8, 8]


def test_lesson_18_an_accepted_attempt_that_waits_holds_room_beside_others() -> None:
    made = resettle(holding("a-1", 4), seen(NodeSeen(8), NodeSeen(2)))
    assert free(made) == [0, 2]


def test_what_does_not_fit_any_more_waits_and_holds_nothing() -> None:
    made = resettle(holding("a-1", 8), seen(NodeSeen(1), NodeSeen(1)))
    assert free(made) == [7, 7]
    assert free(made.release("a-1")) == [7, 7]


def test_of_an_array_the_copies_that_run_and_those_to_come() -> None:
    told = seen(NodeSeen(2), NodeSeen(), running={"a-1": (((POOL.name, 0),), ((POOL.name, 0),))})
    made = resettle(holding("a-1", 1, width=3), told)
    assert sum(free(made)) == 13


def test_a_gang_divides_over_its_nodes() -> None:
    told = seen(
        NodeSeen(4), NodeSeen(4), running={"a-1": (((POOL.name, 0), (POOL.name, 1)),)}
    )
    made = resettle(holding("a-1", 2, replicas=4), told)
    assert free(made) == [4, 4]
    assert [p.node for p in made.reservations["a-1"].places] == [0, 0, 1, 1]


def test_lesson_25_a_drained_node_gives_nothing_away() -> None:
    made = resettle(holding("a-1", 4), seen(NodeSeen(takes_jobs=False), NodeSeen()))
    assert free(made) == [0, 4]
    assert seen(NodeSeen(takes_jobs=False), NodeSeen()).unschedulable == {POOL.name: {0}}


def test_settling_twice_changes_nothing() -> None:
    told = seen(NodeSeen(3), NodeSeen(4, 1_000, GIB), running={"a-1": (((POOL.name, 1),),)})
    once = resettle(holding("a-1", 4), told)
    assert resettle(once, told).reservations == once.reservations
