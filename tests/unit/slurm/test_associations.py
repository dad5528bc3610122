"""Limits of accounts and QOS, as sacctmgr prints them, and what they leave of a site."""

from __future__ import annotations

from federation.local_queue import LocalQueue
from regional_agent.sense.slurm import within
from regional_agent.sense.slurm_pools import SlurmLook
from regional_agent.session.ledger import Ledger, Place, Pool, Request, Reservation
from regional_agent.session.resettle import SiteSeen
from regional_agent.session.site_policy import capped
from regional_agent.slurm.associations import Bounds, parse_bounds
from regional_agent.slurm.site import PoolSource

ASSOCIATIONS = (
    "root|normal||||||\n"  # of a release with a field more: left out
    "phy01|normal,gold|gold|10|1-00:00:00|cpu=8,gres/gpu=16|\n"
    "bio02|normal||3||gres/gpu=4|\n"
)
QOS = "normal|||||||\ngold|8||20|12:00:00|gres/gpu=6||\n"


def test_the_tighter_of_association_and_qos_holds() -> None:
    assert parse_bounds(ASSOCIATIONS, QOS, {"phy01"}, "") == Bounds(8, 12 * 3600, 6)
    assert parse_bounds(ASSOCIATIONS, QOS, {"bio02"}, "") == Bounds(3, None, 4)


def test_of_several_accounts_the_widest_holds() -> None:
    assert parse_bounds(ASSOCIATIONS, QOS, (), "") == Bounds(8, None, 6)
    assert parse_bounds(ASSOCIATIONS, QOS, {"bio02"}, "gold") == Bounds(3, 12 * 3600, 4)


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
    assert capped({}, ledger, None) == {}
    assert capped({}, ledger, 6) == {"h": 2, "a": 2}
    assert capped({"h": 1, "c": 3}, ledger, 6) == {"h": 1, "a": 2, "c": 3}
    assert capped({}, ledger, 3) == {"h": 0, "a": 0}
