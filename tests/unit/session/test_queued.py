"""Attempts that wait in the queue of the site's scheduler: how many may, what they hold, how they
are taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.local_queue import LocalQueue
from federation.refusals import RefusalCode
from regional_agent.session import actions as act
from regional_agent.session import inputs
from regional_agent.session.commands import Dispatch, Stop
from regional_agent.session.events import Refused
from regional_agent.session.ledger import Ledger, Pool, Request
from regional_agent.session.queue_waits import Known, QueueWaits, queues_of
from regional_agent.session.site_policy import SitePolicy
from regional_agent.session.turnover import Turnover
from tests.unit.session.site_world import SiteWorld, dispatch, now

FIRST = 9
POOL = Pool("h100", "H100", 2, 8, 64_000, 2**38)


def to_wait(uid: str, seq: int, **more) -> Dispatch:
    command = dispatch(uid, seq, **more)
    return replace(command, placement=replace(command.placement, queued=True))


@pytest.fixture
def world() -> SiteWorld:
    """A site whose scheduler has a queue, and that has no room left."""
    made = SiteWorld()
    made.welcome()
    made.talk.set_features(made.talk.instant().rules.features | {"queue"})
    made.send(*(dispatch(f"full{seq}-1", seq) for seq in range(1, FIRST)))
    made.run_effects()
    return made


def test_as_many_wait_as_may_and_the_next_is_refused_with_a_code_of_its_own(world) -> None:
    for n in range(5):
        world.send(to_wait(f"w{n}-1", FIRST + n))
    assert [world.kinds(f"w{n}-1")[:1] for n in range(4)] == [["Accepted"]] * 4
    refused = world.last("w4-1")
    assert isinstance(refused, Refused) and refused.code == RefusalCode.QUEUE_FULL
    assert "max_queued" in refused.text
    assert world.talk.instant().max_queued == 4


def test_a_site_whose_scheduler_has_no_queue_lets_none_wait() -> None:
    world = SiteWorld()
    world.welcome()
    world.send(to_wait("w1-1", 1))
    assert world.last("w1-1").code == RefusalCode.QUEUE_FULL
    assert world.talk.instant().queues == {}


def test_who_waits_holds_nothing_and_sits_down_first_when_something_is_free(world) -> None:
    before = world.talk.instant().ledger.free()
    world.send(to_wait("w1-1", FIRST))
    instant = world.talk.instant()
    assert instant.ledger.free() == before and instant.ledger.reservations["w1-1"].places == ()
    world.begin("full1-1")
    world.look("full1-1")
    world.finish("full1-1")
    world.look("full1-1")
    world.run_effects()
    assert world.talk.instant().ledger.reservations["w1-1"].places


def test_who_waits_is_taken_back_and_who_has_begun_is_not(world) -> None:
    for n in (1, 2):
        world.send(to_wait(f"w{n}-1", FIRST + n))
    world.run_effects()
    world.begin("w2-1")
    world.look("w2-1")
    do = act.Actions()
    for n in (1, 2):
        stop = Stop(f"w{n}-1", "withdrawn", 30, unless_started=True)
        world.talk.take(inputs.UpdateArrived(1, (stop,)), now(), do)
    assert [e for e in do.effects if not isinstance(e, act.Complain)] == [act.Withdraw("w1-1")]
    assert world.talk.held("w1-1").withdrawn and not world.talk.held("w2-1").withdrawn


def test_what_begins_while_it_is_taken_back_stays(world) -> None:
    world.send(to_wait("w1-1", FIRST))
    world.run_effects()
    world.send(Stop("w1-1", "withdrawn", 30, unless_started=True))
    world.begin("w1-1")
    world.look("w1-1")
    assert world.kinds("w1-1")[-1] == "Started"
    held = world.talk.held("w1-1")
    assert held.live and not held.withdrawn and not held.stop_why


def test_a_job_that_could_not_run_even_in_the_empty_pool_does_not_wait() -> None:
    ledger = Ledger((POOL,))
    too_large = ledger.join_queue("a", Request("h100", replicas=3, accelerators=8))
    assert too_large.code is RefusalCode.CAPACITY_TAKEN and "nothing running" in too_large.text
    full, _ = ledger.reserve("b", Request("h100", replicas=2, accelerators=8))
    waits, reservation = full.join_queue("c", Request("h100", accelerators=4))
    assert reservation.places == () and waits.seated("c") is waits
    free = waits.release("b").seated("c")
    assert len(free.reservations["c"].places) == 1


def test_the_expected_start_is_the_schedulers_else_learned_else_stated() -> None:
    waits = QueueWaits()
    for waited_ms in (10, 20, 30, 40, 100):
        waits.started("a", waited_ms)
    seen = {"b": LocalQueue(3, 24, 5_000, 9_000), "c": LocalQueue(0, 0, 0, 0)}
    known = Known(waits, 600_000)
    found = queues_of(["a", "b", "c", "d"], seen, known)
    assert (found["a"].start_p50_ms, found["a"].start_p90_ms) == (30, 100)
    assert found["b"] == seen["b"]
    assert found["c"].start_p50_ms == found["d"].start_p50_ms == 600_000
    assert queues_of(["d"], {}, Known(waits))["d"].start_p50_ms is None


def test_more_wait_where_places_change_hands_faster_until_that_is_a_minute_ago() -> None:
    turnover = Turnover()
    for n in range(40):
        turnover.ended(n * 200)
    assert turnover.most == 20
    turnover.ended(30_000)
    assert turnover.most == 20
    turnover.passed(70_000)
    assert turnover.most == 1


def test_as_many_may_wait_as_came_free_within_seconds_unless_the_sites_people_say() -> None:
    world = SiteWorld()
    world.welcome()
    world.talk.set_features(world.talk.instant().rules.features | {"queue"})
    for n in range(1, 7):
        world.send(dispatch(f"a{n}-1", n))
        world.run_effects()
        for step in (world.begin, world.finish):
            step(f"a{n}-1")
            world.look(f"a{n}-1")
        world.run_effects()
    assert world.talk.instant().max_queued == 6
    world.talk.take(
        inputs.RulesChanged("open", "", SitePolicy(max_queued=2)), now(), act.Actions()
    )
    assert world.talk.instant().max_queued == 2
