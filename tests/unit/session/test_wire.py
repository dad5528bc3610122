"""Both ends of the wire agree: what one side says is what the other hears."""

import pytest

from broker.act import gateway as gw
from broker.act.translate import BadFrame, command_to_wire, event_from_wire
from broker.lifecycle import events as heard
from broker.model import jobs, plan
from federation.runs import Runs
from federation.usage import Usage
from federation.wire import session as pb
from regional_agent.session import commands as obeyed
from regional_agent.session import events as said
from regional_agent.session import requests
from regional_agent.translate import (
    BadCommand,
    command_from_wire,
    event_to_wire,
    placement_bytes,
    placement_from_wire,
)

HEAD = ("j1-1", 7, 1_000)
TASKS = Runs(((0, 3), (9, 9)))


@pytest.mark.parametrize(
    ("spoken", "expected"),
    [
        (said.Accepted(4, ("cpu/0",)), heard.Accepted(*HEAD, 4, ("cpu/0",))),
        (said.Refused(4, "paused", "eu: paused"), heard.Refused(*HEAD, 4, "paused", "eu: paused")),
        (said.Prepared(0), heard.Prepared(*HEAD, 0)),
        (said.Prepared(9, 5, 6), heard.Prepared(*HEAD, 9, 5, 6)),
        (said.Started(0, ""), heard.Started(*HEAD, 0, "")),
        (said.Started(12, "77"), heard.Started(*HEAD, 12, "77")),
        (
            said.TasksChanged(TASKS, Runs(((0, 0),)), (said.FailedTasks(Runs(((9, 9),)), 3),)),
            heard.TasksChanged(
                *HEAD, TASKS, Runs(((0, 0),)), (jobs.FailedTasks(Runs(((9, 9),)), 3),)
            ),
        ),
        (said.SliceSet(5, TASKS), heard.SliceSet(*HEAD, 5, TASKS)),
        (said.SliceSet(0, Runs()), heard.SliceSet(*HEAD, 0, Runs())),
        (
            said.Ended(
                "failed",
                2,
                0,
                "no",
                Usage(1, 2, 3, 4),
                (said.Output("a", "0" * 64, 5, 0o600),),
                Runs(),
                (("output", 9),),
            ),
            heard.Ended(
                *HEAD,
                jobs.Outcome(jobs.OutcomeKind.FAILED, 2, 0, "", "no", Usage(1, 2, 3, 4)),
                (jobs.Output("a", "0" * 64, 5, 0o600),),
                (("output", 9),),
            ),
        ),
    ],
)
def test_events_arrive_as_they_were_said(spoken, expected):
    wire = event_to_wire(7, said.Event("j1-1", 2, 1_000, spoken))
    assert event_from_wire(pb.Event.FromString(wire.SerializeToString())) == expected


def test_every_outcome_of_a_site_is_one_the_broker_knows():
    for kind in jobs.OutcomeKind:
        wire = event_to_wire(7, said.Event("j1-1", 2, 1_000, said.Ended(kind.value)))
        assert event_from_wire(wire).outcome.kind is kind


def test_commands_arrive_as_they_were_sent():
    parts = (plan.Part("cpu", "r1", 1), plan.Part("far", "", 1))
    sent = gw.Dispatch(
        3, "j1-1", b"t", b"s", "cpu", "CPU", 2, 1, 500, 1024, 60, 5, 9, TASKS, 4, parts=parts
    )
    there = (requests.Part("cpu", "r1", 1), requests.Part("far", "", 1))
    placement = obeyed.Placement("cpu", "CPU", 2, 1, 500, 1024, 60, 5, TASKS, 4, 9, parts=there)
    got = command_from_wire(command_to_wire(sent))
    assert got == obeyed.Dispatch(3, "j1-1", b"t", b"s", placement)
    kept = pb.Placement.FromString(placement_bytes(placement))
    assert placement_from_wire(kept) == placement
    assert command_from_wire(command_to_wire(gw.Stop("j1-1", "withdrawn", 4))) == obeyed.Stop(
        "j1-1", "withdrawn", 4
    )
    assert command_from_wire(command_to_wire(gw.Forget("j1-1"))) == obeyed.Forget("j1-1")
    prepare = gw.Prepare("j1-0", b"t", b"s")
    assert command_from_wire(command_to_wire(prepare)) == obeyed.Prepare("j1-0", b"t", b"s")
    resliced = gw.SetSlice(9, "j1-1", TASKS, 4)
    assert command_from_wire(command_to_wire(resliced)) == obeyed.SetSlice(9, "j1-1", TASKS, 4)


def test_what_makes_no_sense_is_named():
    with pytest.raises(BadCommand, match="does not know"):
        command_from_wire(pb.Command(uid="j1-1"))
    with pytest.raises(BadFrame, match="says nothing"):
        event_from_wire(pb.Event(event_seq=1, uid="j1-1"))
