"""Contact over the real wire: confirmed by who leads, counted alike on both sides."""

from __future__ import annotations

import asyncio

import pytest

from broker.lifecycle import events as ev
from broker.model.jobs import OutcomeKind
from regional_agent.contact import since_boot_s
from tests.integration.session.federation_site import CLOCK, Broker, running


def fenced(broker: Broker, uid: str, after_s: int):
    spec = {"run": "sleep 60", "preempt_grace": "1s"}
    return broker.dispatch(uid, spec, fence_after_s=after_s, stop_grace_s=1)


async def test_only_a_leader_confirms_contact(broker, state):
    broker.admit("eu", state)
    async with running(state) as agent:
        await broker.connected("eu")
        contact, gateway = agent.agent.contact, broker.gateway
        await asyncio.wait_for(contact.renewed.wait(), 10)
        first_s = contact.at_s
        assert 0 <= since_boot_s() - first_s < 5  # the welcome
        await asyncio.sleep(2.5)
        later_s, answered_s = contact.at_s, gateway.answered_s("eu")
        assert later_s > first_s and CLOCK.monotonic_s() - answered_s < 2
        broker.facts.is_leading = False
        await asyncio.sleep(1)
        still_s, silent_s = contact.at_s, gateway.answered_s("eu")
        await asyncio.sleep(2.5)
        assert (contact.at_s, gateway.answered_s("eu")) == (still_s, silent_s)
        # Whatever the agent counts from, the broker counts from no earlier.
        assert since_boot_s() - contact.at_s >= CLOCK.monotonic_s() - silent_s
    assert gateway.answered_s("us") == float("-inf")


async def test_a_job_runs_on_with_contact_and_is_stopped_without(broker, state):
    broker.admit("eu", state)
    async with running(state):
        await broker.connected("eu")
        await broker.send(fenced(broker, "j1-1", 3))
        await broker.event("j1-1", ev.Started)
        await asyncio.sleep(5)
        assert not [e for e in broker.events["j1-1"] if isinstance(e, ev.Ended)]
        broker.facts.is_leading = False  # it still speaks, and its word counts no more
        ended = await broker.event("j1-1", ev.Ended)
        assert (ended.outcome.kind, ended.outcome.code) == (OutcomeKind.LOST, "fenced")
        assert "no contact" in ended.outcome.text


async def test_what_is_not_started_in_time_is_refused_and_not_lost(broker, state):
    """Accepted, and then the agent is restarted before it was handed over: it never ran here."""
    broker.admit("eu", state)
    async with running(state) as agent:
        await broker.connected("eu")
        broker.facts.is_leading = False
        await asyncio.sleep(1.5)  # no answer is under way any more
        agent.agent.contact.at_s = since_boot_s() - 100  # as after a long silence
        await broker.send(fenced(broker, "j1-1", 3))
        refused = await broker.event("j1-1", ev.Refused)
        assert refused.code == "fenced"


@pytest.mark.slow
async def test_a_slow_heartbeat_of_the_brokers_is_no_silence(broker, state):
    """Brokers may ask for one a minute; a job may have no more than a minute."""
    broker.facts.heartbeat_ms = 60_000
    broker.admit("eu", state)
    async with running(state):
        await broker.connected("eu")
        await broker.send(fenced(broker, "j1-1", 18))
        await broker.event("j1-1", ev.Started)
        await asyncio.sleep(22)
        assert not [e for e in broker.events["j1-1"] if isinstance(e, ev.Ended)]
