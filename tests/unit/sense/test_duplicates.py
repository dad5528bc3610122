"""Cards that two agents report are counted once, and everybody is told."""

from dataclasses import replace

from broker.control.build_problem import World, build
from broker.model.fleet import (
    Capacity,
    ClusterIdentity,
    ClusterState,
    ClusterView,
    Fleet,
    NodeGroup,
    PoolCapacity,
    PoolPrice,
)
from broker.sense.duplicates import duplicates
from broker.sense.reports import capacity_from
from federation.refusals import RefusalCode
from federation.wire import records as pb
from regional_agent.sense.host import Card, Host, found_pools, with_cards
from regional_agent.sense.reports import SiteState, capacity_report
from regional_agent.session.ledger import Ledger, Pool
from regional_agent.translate import capacity_to_wire

NOW_MS = 1_000_000
GROUP = NodeGroup(1, "H100-80GB", 2, 2, 8_000, 8_000, 2**36, 2**36)


def view(name: str, joined_ms: int, *cards: str) -> ClusterView:
    identity = ClusterIdentity(name, "eu", ClusterState.JOINED, joined_ms=joined_ms)
    pools = (PoolCapacity("h100", (GROUP,), cards=cards),)
    capacity = Capacity(NOW_MS, NOW_MS, 1, 1, 1, pools)
    price = PoolPrice("h100", "owned", 0, 0, 1, "typed")
    return ClusterView(identity, capacity, {"h100": price}, connected_since_ms=1, reported=True)


def fleet(*views: ClusterView) -> Fleet:
    return Fleet({each.identity.name: each for each in views})


def test_the_cluster_that_joined_first_keeps_the_cards():
    found = duplicates(fleet(view("b", 1, "u1", "u2"), view("a", 2, "u2", "u3")))
    assert list(found) == [("a", "h100")]
    assert found["a", "h100"].code is RefusalCode.CAPACITY_UNKNOWN
    assert "1 of its cards are reported by b/h100 as well" in found["a", "h100"].text


def test_cards_nobody_knows_and_cards_of_one_are_no_duplicates():
    assert not duplicates(fleet(view("a", 1), view("b", 2)))
    assert not duplicates(fleet(view("a", 1, "u1"), view("b", 2, "u2")))


def test_the_problem_has_them_once_and_says_why():
    both = fleet(view("a", 1, "u1", "u2"), view("b", 2, "u1", "u2"))
    problem = build(World(both, {}, {}, NOW_MS), [])
    usable = {pool.name: pool.unusable is None for pool in problem.pools}
    assert usable == {"a/h100": True, "b/h100": False}
    apart = fleet(view("a", 1, "u1", "u2"), view("b", 2, "u3", "u4"))
    assert all(pool.unusable is None for pool in build(World(apart, {}, {}, NOW_MS), []).pools)


def test_an_agent_tells_the_cards_its_driver_names():
    cards = [Card(i, "NVIDIA H100 80GB HBM3", 80 * 2**30, f"GPU-{i}") for i in range(2)]
    (pool,) = found_pools(Host(8_000, 2**36), cards)
    assert pool.cards == ("GPU-0", "GPU-1")
    report = capacity_report(1, Ledger((pool,)), SiteState(1, 1, 1))
    wire = capacity_to_wire(report).capacity.SerializeToString()
    read = capacity_from(pb.CapacityReport.FromString(wire), 1)
    assert read.pools[0].cards == ("GPU-0", "GPU-1")
    whole = Pool("x", pool.accelerator, 1, 2, 1, 1)
    part = replace(whole, accelerators_per_node=1)
    paper = replace(whole, simulated=True)
    assert [p.cards for p in with_cards((whole, part, paper), cards)] == [pool.cards, (), ()]
