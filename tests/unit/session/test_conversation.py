"""The agent's half of the conversation, without any I/O."""

import random
from dataclasses import replace

import pytest

from federation.runs import Runs
from regional_agent.session import actions as act
from regional_agent.session import inputs
from regional_agent.session.commands import Forget, SetSlice, Stop
from regional_agent.session.events import Ended, Refused, TasksChanged
from regional_agent.session.inputs import End, LocalView
from tests.unit.session.site_world import NOW_MS, SiteWorld, dispatch

WHOLE = ["Accepted", "Prepared", "Started", "Ended"]


@pytest.fixture
def world():
    made = SiteWorld()
    made.welcome()
    return made


def through(world: SiteWorld, uid: str, seq: int = 1, **more) -> None:
    world.send(dispatch(uid, seq, **more))
    world.run_effects()
    world.begin(uid)
    world.look(uid)
    world.finish(uid)
    world.look(uid)
    world.run_effects()


def test_a_job_goes_through_and_gives_its_capacity_back(world):
    through(world, "j1-1")
    assert world.kinds("j1-1") == WHOLE
    instant = world.talk.instant()
    assert (instant.dispatch_seq, instant.event_seq) == (1, 4)
    assert not instant.ledger.reservations
    assert (instant.start_p50_ms, instant.waiting) == (5, 0)
    ended = world.last("j1-1")
    assert (ended.kind, ended.usage.wall_ms, ended.logs) == ("succeeded", 4, (("output", 3),))


def test_nothing_is_launched_before_its_acceptance_is_written(world):
    do = act.Actions()
    world.talk.take(inputs.UpdateArrived(1, (dispatch("j1-1"),)), inputs.Now(NOW_MS, NOW_MS), do)
    assert [type(w).__name__ for w in do.writes] == ["Accept", "Tell", "Take"]
    assert [type(e).__name__ for e in do.effects] == ["Launch"]


def test_the_same_dispatch_twice_is_one_launch_and_one_answer(world):
    command = dispatch("j1-1")
    world.send(command)
    world.send(command)
    world.run_effects()
    assert world.launches == ["j1-1"]
    assert world.kinds("j1-1") == ["Accepted", "Prepared"]


def test_a_dispatch_after_everything_was_acknowledged_repeats_the_story(world):
    through(world, "j1-1")
    world.ack()
    world.send(dispatch("j1-1", epoch=2), epoch=2)
    assert world.kinds("j1-1") == WHOLE * 2
    assert world.effects == []
    assert world.disk.rows["j1-1"].epoch == 2


def test_capacity_is_refused_when_it_is_taken_and_the_refusal_stands(world):
    for n in range(8):
        world.send(dispatch(f"j{n}-1", n + 1))
    world.send(dispatch("j8-1", 9))
    assert world.last("j8-1").code == "capacity_taken"
    world.ack()
    world.send(Stop("j0-1", "cancelled", 1))
    world.run_effects()
    world.send(dispatch("j8-1", 9))
    assert isinstance(world.last("j8-1"), Refused)
    assert "j8-1" not in world.launches


def test_a_stale_leader_has_no_say(world):
    world.send(epoch=3)
    effects = world.send(dispatch("j1-1", epoch=2), epoch=3)
    assert [type(e).__name__ for e in effects] == ["Complain"]
    assert world.kinds("j1-1") == []


def test_a_bad_ticket_does_not_disturb_what_runs(world):
    world.send(dispatch("j1-1"))
    world.run_effects()
    effects = world.send(dispatch("j1-1", in_ticket={"cluster": "us"}))
    assert [type(e).__name__ for e in effects] == ["Complain"]
    assert world.kinds("j1-1") == ["Accepted", "Prepared"]


@pytest.mark.parametrize("when", ["before", "staging", "queued", "running"])
def test_stop_ends_it_whenever_it_comes(world, when):
    if when != "before":
        world.send(dispatch("j1-1"))
    if when in ("queued", "running"):
        world.run_effects()
    if when == "running":
        world.begin("j1-1")
        world.look("j1-1")
    world.send(Stop("j1-1", "preempted", 1))
    world.effects.sort(key=lambda effect: isinstance(effect, act.Launch))  # the cancel overtakes
    world.run_effects()
    ended = world.last("j1-1")
    assert (type(ended), ended.kind) == (Ended, "cancelled")
    assert world.launches == ([] if when in ("before", "staging") else ["j1-1"])
    if when != "running":
        assert ended.text == "never started here"
    assert not world.talk.instant().ledger.reservations


def test_stop_of_what_ended_says_so_again_only_once_that_was_acknowledged(world):
    through(world, "j1-1")
    world.send(Stop("j1-1", "cancelled", 1))
    assert world.kinds("j1-1") == WHOLE
    world.ack()
    world.send(Stop("j1-1", "cancelled", 1))
    assert world.last("j1-1").kind == "succeeded"
    assert len(world.kinds("j1-1")) > len(WHOLE)


def test_forget_waits_for_the_acknowledgement_and_leaves_nothing(world):
    through(world, "j1-1")
    assert world.send(Forget("j1-1")) == []
    world.ack()
    world.send(Forget("j1-1"))
    world.run_effects()
    assert world.disk.rows == {} and world.talk.held("j1-1") is None and world.views == {}


def test_a_tombstone_nobody_forgets_goes_after_a_day(world):
    through(world, "j1-1")
    world.ack()
    world.take(inputs.TimePassed(), NOW_MS + 23 * 3_600_000)
    assert world.effects == []
    world.take(inputs.TimePassed(), NOW_MS + 25 * 3_600_000)
    world.run_effects()
    assert world.disk.rows == {}


def test_adopt_only_never_launches(world):
    world.send(dispatch("j1-1", adopt_only=True))
    world.run_effects()
    assert world.last("j1-1").kind == "lost"
    world.views["j2-1"] = LocalView("j2-1", "queued", Runs(((0, 0),)), Runs())
    world.begin("j2-1")
    world.send(dispatch("j2-1", 2, adopt_only=True))
    world.run_effects()
    assert world.kinds("j2-1") == ["Accepted", "Started"]
    assert world.launches == []
    assert "j2-1" in world.talk.instant().ledger.reservations


def test_a_replaced_disk_counts_on_and_looks_before_it_launches():
    world = SiteWorld()
    world.welcome(resume=500, disk_replaced=True)
    world.send(dispatch("j1-1"))
    (launch,) = [e for e in world.effects if isinstance(e, act.Launch)]
    assert launch.look_first
    assert [seq for seq, _ in world.told] == [501]


# Slices ------------------------------------------------------------------------------------------


def slice_view(started: int, ended: int, total: int = 10, failed: Runs | None = None) -> LocalView:
    done = Runs(((0, ended - 1),)) if ended else Runs()
    bad = failed or Runs()
    ends = [(End("succeeded"), done.difference(bad))]
    if bad:
        ends.append((End("failed", 7), bad))
    running = Runs(((ended, started - 1),)) if started > ended else Runs()
    rest = Runs(((started, total - 1),)) if started < total else Runs()
    return LocalView("a-1", "running", rest, running, tuple(ends), NOW_MS, NOW_MS + 1)


def a_slice(world: SiteWorld) -> None:
    placement = {"tasks": Runs(((0, 9),)), "width": 2}
    world.send(dispatch("a-1", spec={"run": "true", "array": "0-99"}, placement=placement))
    world.run_effects()


def told_tasks(world: SiteWorld) -> list[TasksChanged]:
    return [e.said for _, e in world.told if isinstance(e.said, TasksChanged)]


def test_tasks_are_told_as_runs_and_each_once(world):
    a_slice(world)
    for started, ended in ((2, 0), (3, 1), (3, 1), (6, 4)):
        world.take(inputs.LocalChanged((slice_view(started, ended),)))
    told = told_tasks(world)
    assert [(str(t.started), str(t.succeeded)) for t in told] == [
        ("0-1", ""),
        ("2", "0"),
        ("3-5", "1-3"),
    ]
    world.take(inputs.LocalChanged((slice_view(6, 5, failed=Runs(((4, 4),))),)))
    (group,) = told_tasks(world)[-1].failed
    assert (str(group.tasks), group.exit_code) == ("4", 7)


def test_a_silent_broker_makes_one_long_event_not_thousands(world):
    a_slice(world)
    for n in range(1, 10):
        world.take(inputs.LocalChanged((slice_view(n + 1, n),)))
    assert len(told_tasks(world)) == 4
    world.ack()
    assert len(told_tasks(world)) == 5
    assert str(told_tasks(world)[-1].succeeded) == "4-8"


def test_after_a_restart_only_news_is_told(world):
    a_slice(world)
    world.take(inputs.LocalChanged((slice_view(3, 1),)))
    world.views["a-1"] = slice_view(5, 3)
    world.crash()
    assert [(str(t.started), str(t.succeeded)) for t in told_tasks(world)] == [
        ("0-2", "0"),
        ("3-4", "1-2"),
    ]


def test_a_slice_is_never_wider_than_what_is_reserved(world):
    a_slice(world)
    (reslice,) = world.send(SetSlice(2, "a-1", Runs(((0, 50),)), 5))
    assert (reslice.width, reslice.dispatch_seq) == (2, 2)
    world.run_effects()
    assert world.last("a-1").dispatch_seq == 2
    world.ack()
    assert world.send(SetSlice(2, "a-1", Runs(((0, 50),)), 5)) == []
    assert world.last("a-1").dispatch_seq == 2


def test_a_slice_the_scheduler_will_not_change_is_told_as_it_is(world):
    """The broker is answered, so it does not ask again, and gives the tasks to somebody else."""
    a_slice(world)
    world.send(SetSlice(2, "a-1", Runs(((0, 50),)), 2))
    world.take(inputs.SliceIs("a-1", 2, None, "width 2 does not fit 1 places"))
    told = world.last("a-1")
    assert (told.dispatch_seq, str(told.tasks)) == (2, "0-9")
    world.ack()
    assert world.send(SetSlice(2, "a-1", Runs(((0, 50),)), 2)) == []
    assert str(world.last("a-1").tasks) == "0-9"


def test_what_a_slice_never_started_comes_back_with_its_end(world):
    a_slice(world)
    view = replace(slice_view(3, 3), phase="ended", outcome=End("cancelled"), ended_ms=NOW_MS + 5)
    world.take(inputs.LocalChanged((view,)))
    world.run_effects()
    assert world.kinds("a-1")[-2:] == ["TasksChanged", "Ended"]
    assert str(world.last("a-1").unstarted) == "3-9"


# Crashes -----------------------------------------------------------------------------------------


def test_accepted_but_never_submitted_is_submitted_after_a_restart(world):
    world.send(dispatch("j1-1"))
    world.crash()
    world.run_effects()
    assert world.launches == ["j1-1"]
    assert world.kinds("j1-1") == ["Accepted", "Prepared"]


def test_submitted_and_unknown_after_a_restart_is_lost_not_run_again(world):
    world.send(dispatch("j1-1"))
    world.run_effects()
    world.views.clear()
    world.crash()
    world.run_effects()
    assert world.last("j1-1").kind == "lost"
    assert world.launches == ["j1-1"]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_nothing_runs_twice_and_everything_ends(seed):
    """Random commands, repeats, crashes before and after commits, reconnects, lost replies."""
    dice = random.Random(seed)
    world = SiteWorld()
    world.welcome()
    uids = [f"j{n}-1" for n in range(6)]
    commands = {uid: dispatch(uid, n + 1) for n, uid in enumerate(uids)}
    sent: set[str] = set()
    for _ in range(120):
        uid = dice.choice(uids)
        step = dice.randrange(9)
        if step == 0:
            world.send(commands[uid])
            sent.add(uid)
        elif step == 1 and dice.random() < 0.3:
            world.send(Stop(uid, "cancelled", 1))
            sent.add(uid)
        elif step == 2 and world.effects:
            world.effects.insert(0, world.effects.pop(dice.randrange(len(world.effects))))
            world.one_effect()
        elif step in (3, 4) and uid in world.views:
            (world.begin if step == 3 else world.finish)(uid)
        elif step == 5 and world.views:
            world.look(*world.views)
        elif step == 6 and dice.random() < 0.4:
            lost = inputs.UpdateArrived(1, (commands[uid],)) if dice.random() < 0.5 else None
            world.crash(lost)
            world.welcome()
        elif step == 7:
            world.send(ack=dice.randint(world.disk.acked, world.disk.event_seq))
        elif step == 8:
            world.run_effects()
    settle(world, commands, sent)
    assert len(world.launches) == len(set(world.launches))
    for uid in sent:
        ends = {type(e.said).__name__ + e.said.kind for _, e in world.told if ended(e, uid)}
        assert len(ends) == 1, (uid, world.kinds(uid))
    assert not world.talk.instant().ledger.reservations
    assert [seq for seq, _ in world.told] == list(range(1, len(world.told) + 1))


def ended(event, uid: str) -> bool:
    return event.uid == uid and isinstance(event.said, Ended)


def settle(world: SiteWorld, commands: dict, sent: set[str]) -> None:
    """What a leader and a scheduler do when nothing disturbs them any more."""
    for _ in range(4):
        world.ack()
        for uid in sorted(sent):
            if not any(ended(event, uid) for _, event in world.told):
                world.send(commands[uid])
        world.run_effects()
        for uid in list(world.views):
            world.begin(uid)
            world.finish(uid)
        world.look(*world.views)
        world.run_effects()


def test_a_gang_that_shares_a_node_keeps_it_over_a_crash() -> None:
    spec = {"run": "true", "resources": {"replicas": 2, "topology": "node"}}
    world = SiteWorld()
    world.talk.set_features(frozenset({"gang", "one_node"}))
    world.welcome()
    world.send(dispatch("j1-1", spec=spec, placement={"replicas": 2}))
    before = world.talk.instant().ledger.reservations["j1-1"]
    assert before.request.one_node and len({place.node for place in before.places}) == 1
    world.crash()
    assert world.talk.instant().ledger.reservations["j1-1"] == before


def test_a_scheduler_that_cannot_keep_a_gang_on_one_node_is_given_none() -> None:
    spec = {"run": "true", "resources": {"replicas": 2, "topology": "node"}}
    world = SiteWorld()
    world.talk.set_features(frozenset({"gang"}))
    world.welcome()
    world.send(dispatch("j1-1", spec=spec, placement={"replicas": 2}))
    assert world.last("j1-1").code == "unsupported"
    assert "gangs on one node" in world.last("j1-1").text


class TwoNodes(SiteWorld):
    pools = tuple(replace(pool, nodes=2) for pool in SiteWorld.pools)


APART = [
    ({"replicas": 2}, {"resources": {"replicas": 2}}, "members"),
    ({"tasks": Runs.of([(0, 3)]), "width": 2}, {"array": "0-3"}, "tasks"),
]


@pytest.mark.parametrize(("placement", "spec", "what"), APART, ids=["gang", "array"])
def test_nodes_of_their_own_are_kept_over_a_crash_where_the_scheduler_sees_to_them(
    placement, spec, what
):
    spec = {"run": "true", "placement": {"spread": "node"}, **spec}
    able = TwoNodes()
    able.talk.set_features(frozenset({"gang", "array", f"{what}_apart"}))
    able.welcome()
    able.send(dispatch("j1-1", spec=spec, placement=placement))
    before = able.talk.instant().ledger.reservations["j1-1"]
    assert before.request.own_nodes and len({place.node for place in before.places}) == 2
    able.crash()
    assert able.talk.instant().ledger.reservations["j1-1"] == before
    unable = SiteWorld()
    unable.talk.set_features(frozenset({"gang", "array"}))
    unable.welcome()
    unable.send(dispatch("j1-1", spec=spec, placement=placement))
    assert unable.last("j1-1").code == "unsupported"
    assert f"{what} of a job on nodes of their own" in unable.last("j1-1").text


class Licensed(SiteWorld):
    pools = tuple(replace(pool, extras=(("fpga", 1), ("matlab", 3))) for pool in SiteWorld.pools)


def test_what_an_attempt_has_of_its_pools_extras_is_kept_over_a_crash() -> None:
    spec = {"run": "true", "resources": {"extras": {"matlab": 2, "fpga": 1}}}
    world = Licensed()
    world.welcome()
    world.send(dispatch("j1-1", spec=spec))
    held = world.talk.instant().ledger.reservations["j1-1"]
    assert held.request.extras == (("fpga", 1), ("matlab", 2))
    world.crash()
    assert world.talk.instant().ledger.reservations["j1-1"] == held
    world.welcome()
    world.send(dispatch("j2-1", 2, spec=spec))
    assert world.last("j2-1").code == "no_extras"
