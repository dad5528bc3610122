"""What the site's people decide at a running conversation."""

from dataclasses import replace

from federation.site_limits import SiteLimits
from regional_agent.session import actions as act
from regional_agent.session.events import Ended, Refused
from regional_agent.session.inputs import RulesChanged, SiteStops
from regional_agent.session.site_policy import SitePolicy
from tests.unit.session.site_world import SiteWorld, dispatch


def running(*uids: str) -> SiteWorld:
    world = SiteWorld()
    world.welcome()
    world.send(*(dispatch(uid, seq) for seq, uid in enumerate(uids, 1)))
    world.run_effects()
    for uid in uids:
        world.begin(uid)
        world.look(uid)
    return world


def test_what_is_evicted_was_preempted_and_may_run_elsewhere():
    world = running("j1-1", "j2-1")
    world.take(SiteStops(frozenset({"j1-1"}), "evicted", 300))
    assert [e for e in world.effects if isinstance(e, act.Cancel)] == [act.Cancel("j1-1", 300)]
    world.run_effects()
    said = world.last("j1-1")
    assert isinstance(said, Ended)
    assert (said.kind, said.text) == ("preempted", "evicted by the site")
    assert world.talk.held("j2-1").live


def test_an_eviction_outlives_a_crash_at_every_point():
    world = running("j1-1")
    world.crash(SiteStops(None, "evicted", 5))
    assert world.talk.held("j1-1").stop_why == ""  # it was not committed; it is asked again
    world.take(SiteStops(None, "evicted", 5))
    world.crash()
    assert world.talk.held("j1-1").stop_why == "evicted"
    world.run_effects()
    assert world.last("j1-1").kind == "preempted"


def test_what_ended_by_itself_keeps_its_outcome():
    world = running("j1-1")
    world.take(SiteStops(None, "evicted", 5))
    world.effects.clear()
    world.finish("j1-1", "failed", 3)
    world.look("j1-1")
    world.run_effects()
    assert (world.last("j1-1").kind, world.last("j1-1").exit_code) == ("failed", 3)


def test_what_is_being_cancelled_is_not_evicted_as_well():
    world = running("j1-1")
    world.talk.held("j1-1").stop_why = "cancelled"
    assert world.take(SiteStops(None, "evicted", 5)) == []


def test_a_paused_site_refuses_new_work_and_its_report_says_why():
    world = running("j1-1")
    before = world.talk.changes
    world.take(RulesChanged("paused", "cooling", SitePolicy()))
    assert world.talk.changes > before
    world.send(dispatch("j2-1", 2))
    said = world.last("j2-1")
    assert isinstance(said, Refused)
    assert (said.code, said.text) == ("paused", "eu: paused: cooling")
    assert world.talk.held("j1-1").live
    world.take(RulesChanged("open", "", SitePolicy()))
    world.send(dispatch("j3-1", 3))
    assert world.talk.held("j3-1").live


def test_other_rules_bind_what_comes_and_not_what_was_accepted():
    world = running("j1-1")
    policy = SitePolicy(replace(SiteLimits(), banned=frozenset({"ann"})))
    world.take(RulesChanged("open", "", policy))
    world.send(dispatch("j2-1", 2))
    assert world.last("j2-1").code == "banned"
    assert world.talk.held("j1-1").live


def test_an_attempt_adopted_at_a_closed_site_keeps_its_spec():
    world = running("j1-1")
    world.disk.rows.clear()
    world.start()
    world.take(RulesChanged("draining", "", SitePolicy()))
    world.welcome(disk_replaced=True)
    world.send(dispatch("j1-1", 1, adopt_only=True))
    world.run_effects()
    assert world.talk.held("j1-1").spec is not None
