"""Limits of accounts and QOS, as sacctmgr prints them, and what they leave of a site."""

from __future__ import annotations

from dataclasses import replace

from federation.local_queue import LocalQueue
from regional_agent.act.schedulers.port import LaunchOrder
from regional_agent.act.schedulers.slurm_words import too_many_cards
from regional_agent.sense.slurm import within
from regional_agent.sense.slurm_pools import SlurmLook
from regional_agent.session.ledger import Ledger, Place, Pool, Request, Reservation
from regional_agent.session.resettle import SiteSeen
from regional_agent.session.site_policy import capped
from regional_agent.slurm.associations import (
    Bounds,
    accounts_of,
    parents_of,
    parse_bounds,
    parse_qos,
)
from regional_agent.slurm.site import PoolSource

ASSOCIATIONS = (
    "root|||normal|||||||\n"  # of a release with a field more: left out
    "phy01||me|normal,gold|gold|10||1-00:00:00|cpu=8,gres/gpu=16|\n"
    "bio02||me|normal||3|||gres/gpu=4|\n"
)
QOS = "normal||||||||\ngold|8||20|12:00:00|gres/gpu=6|||\n"
ABOVE = (
    "phy01|science||normal||||||gres/gpu=5\n"  # inherited by its users: their rows say it
    "phy01||me|normal|gold|10||1-00:00:00|cpu=8,gres/gpu=16|gres/gpu=5\n"
    "science|root||normal|||6||gres/gpu=12|\n"
    "root|||normal||||||\n"
)


def test_the_tighter_of_association_and_qos_holds() -> None:
    assert parse_bounds(ASSOCIATIONS, QOS, {"phy01"}, "") == Bounds(8, 12 * 3600, 6)
    assert parse_bounds(ASSOCIATIONS, QOS, {"bio02"}, "") == Bounds(3, None, 4)


def test_of_several_accounts_the_widest_holds() -> None:
    assert parse_bounds(ASSOCIATIONS, QOS, (), "") == Bounds(8, None, 6)
    assert parse_bounds(ASSOCIATIONS, QOS, {"bio02"}, "gold") == Bounds(3, 12 * 3600, 4)


def test_group_limits_of_parent_accounts_hold_too() -> None:
    own = ASSOCIATIONS.replace("gres/gpu=16|", "gres/gpu=16|gres/gpu=5")
    found = parse_bounds(own, QOS, {"phy01"}, "normal", ABOVE)
    assert found == Bounds(6, 86_400, 12, 5)
    assert parents_of(ABOVE) == {"phy01": "science", "science": "root"}
    assert accounts_of(own, {"phy01", "x"}) == {"phy01"} and len(accounts_of(own)) == 2
    looped = ABOVE.replace("science|root", "science|phy01")
    assert parse_bounds(own, QOS, {"phy01"}, "normal", looped) == found


def test_the_qos_of_a_partition_binds_its_pools_alone() -> None:
    seen = SiteSeen((), {}, queues={"h": LocalQueue(0), "c": LocalQueue(0)})
    sources = {"h": PoolSource("main", walltime_max_s=86_400), "c": PoolSource("other")}
    of_main = parse_qos("q|3||||gres/gpu=7|||gres/gpu=2\n")["q"]
    found = within(SlurmLook(seen, sources), Bounds(9, 3_600), {"main": of_main})
    assert found.seen.cards_bounds == ((frozenset({"h"}), 7),)
    assert [found.seen.queues[pool].pending_max for pool in "hc"] == [3, 9]
    assert found.sources["h"] == PoolSource("main", walltime_max_s=3_600, cards_per_job_max=2)
    assert found.sources["c"] == PoolSource("other", walltime_max_s=3_600)
    order = LaunchOrder("j-1", "j", "t", run="true", accelerator="H100", replicas=3,
                        places=(Place("h", 0, (0,)),) * 3)  # fmt: skip
    refused = too_many_cards(order, found.sources["h"])
    assert refused is not None and "needs 3 accelerators, has at most 2 of one job" in refused.text
    assert too_many_cards(order, found.sources["c"]) is None


def test_a_user_without_such_an_account_has_no_bounds_that_are_known() -> None:
    assert parse_bounds(ASSOCIATIONS, QOS, {"chess"}, "") is None
    assert parse_bounds("", "", (), "") is None


def test_what_is_left_of_a_site() -> None:
    seen = SiteSeen((), {}, max_submit=10_000, queues={"h": LocalQueue(4)})
    look = SlurmLook(seen, {"h": PoolSource("main", walltime_max_s=86_400)})
    found = within(look, Bounds(5, 3_600, 6))
    assert (found.seen.max_submit, found.seen.cards_max) == (5, 6)
    assert found.seen.queues["h"] == LocalQueue(4, pending_max=5)
    assert found.sources["h"].walltime_max_s == 3_600
    assert within(look, Bounds()).sources == look.sources


def test_the_cards_of_all_pools_together_are_bounded() -> None:
    pools = tuple(Pool(name, model, 2, 8, 64_000, 2**39) for name, model in
                  (("h", "H100"), ("a", "A100-80GB"), ("c", "CPU")))  # fmt: skip
    ledger = Ledger(pools)
    held = Reservation("j-1", Request("h", accelerators=4), (Place("h", 0, (0, 1, 2, 3)),))
    ledger = Ledger(pools, {"j-1": held})
    six, three = (SiteSeen((), {}, cards_max=most) for most in (6, 3))
    assert capped({}, ledger, None) == capped({}, ledger, SiteSeen((), {})) == {}
    assert capped({}, ledger, six) == {"h": 2, "a": 2}
    assert capped({"h": 1, "c": 3}, ledger, six) == {"h": 1, "a": 2, "c": 3}
    assert capped({}, ledger, three) == {"h": 0, "a": 0}
    of_one = replace(six, cards_bounds=((frozenset({"h"}), 5),))
    assert capped({}, ledger, of_one) == {"h": 1, "a": 2}
    of_slots = replace(six, slots_bounds=((frozenset({"c", "h"}), 7),))
    assert capped({}, ledger, of_slots) == {"h": 2, "a": 2, "c": 7}
