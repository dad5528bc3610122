"""The context on its way: command line, client, site, journal, environment of the job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.act import gateway as gw
from broker.act.translate import command_to_wire
from broker.cli.tracing import Submitting, submitting
from broker.client import Connection, connect
from federation.runs import Runs
from federation.system import SystemClock, SystemIds
from federation.traces import KeptSpans, NoSpans, parse_traceparent
from regional_agent.effects import launch_order
from regional_agent.session import actions as act
from regional_agent.translate import command_from_wire
from tests.unit.client.speaking_server import TOKEN, SpeakingServer, serving
from tests.unit.session.site_world import SiteWorld, dispatch

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def submission(sink: NoSpans, given: str = "") -> Submitting:
    return Submitting(sink, parse_traceparent(given), SystemClock(), SystemIds())


def test_a_submission_begins_a_trace_or_goes_on_with_one() -> None:
    sink = KeptSpans()
    fresh = submission(sink)
    fresh.submitted("j1")
    fresh.over()
    (span,) = sink.spans
    context = parse_traceparent(fresh.traceparent)
    assert context is not None and context.span_id == span.span_id
    assert span.parent_id == "" and span.kind == "client" and not span.error
    below = submission(sink, GIVEN)
    below.over("Refused")
    assert (sink.spans[1].trace_id, sink.spans[1].parent_id) == tuple(GIVEN.split("-")[1:3])
    assert sink.spans[1].error == "Refused"


def test_without_telemetry_a_given_context_is_passed_on_as_it_is() -> None:
    assert submission(NoSpans(), GIVEN).traceparent == GIVEN
    assert submission(NoSpans()).traceparent == ""
    with submitting({"TRACEPARENT": GIVEN}) as trace:
        assert trace.traceparent == GIVEN


def test_an_unsampled_submission_tells_nothing_but_is_passed_on() -> None:
    sink = KeptSpans()
    quiet = submission(sink, GIVEN[:-2] + "00")
    quiet.submitted("j1")
    assert sink.spans == [] and quiet.traceparent.endswith("-00")


async def test_the_client_sends_the_header_with_a_submission() -> None:
    with serving() as server:
        assert isinstance(server, SpeakingServer)
        async with connect(Connection(server.url, TOKEN)) as client:
            await client.submit({"command": ["true"]}, traceparent=GIVEN)
            await client.submit({"command": ["true"]})
        with_it, without = (each[3] for each in server.asked("POST", "/v1/jobs"))
        assert with_it["traceparent"] == GIVEN and "traceparent" not in without


@pytest.mark.parametrize(("sent", "heard"), [(GIVEN, GIVEN), ("$(reboot)", ""), ("", "")])
def test_a_site_takes_a_context_and_nothing_else_that_is_called_one(
    sent: str, heard: str
) -> None:
    command = gw.Dispatch(
        1, "j1-1", b"t", b"{}", "cpu", "CPU", 1, 1, 1, 1, 60, 5, 0, Runs(), 0, traceparent=sent
    )
    assert command_from_wire(command_to_wire(command)).traceparent == heard  # type: ignore[union-attr]


def test_the_journal_keeps_the_context_for_a_launch_after_a_crash() -> None:
    world = SiteWorld()
    world.welcome()
    world.send(replace(dispatch("j1-1"), traceparent=GIVEN), dispatch("j2-1", 2))
    world.crash()
    launches = {e.uid: e for e in world.effects if isinstance(e, act.Launch)}
    assert {uid: each.traceparent for uid, each in launches.items()} == {
        "j1-1": GIVEN, "j2-1": "",
    }  # fmt: skip
    order = launch_order(launches["j1-1"], (("A", "b"),))
    assert order.env == (("A", "b"), ("TRACEPARENT", GIVEN))
    assert launch_order(launches["j2-1"], (("A", "b"),)).env == (("A", "b"),)
    held = world.talk.held("j1-1")
    assert held is not None and held.traceparent == GIVEN


def test_what_a_job_says_of_its_own_environment_wins() -> None:
    world = SiteWorld()
    world.welcome()
    spec = {"run": "true", "env": {"TRACEPARENT": "mine"}}
    (launch,) = world.send(replace(dispatch("j1-1", spec=spec), traceparent=GIVEN))
    assert isinstance(launch, act.Launch)
    assert dict(launch_order(launch, ()).env)["TRACEPARENT"] == "mine"
