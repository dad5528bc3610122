"""Nothing runs without a ticket that allows exactly it; nobody gets in without a certificate."""

import os

import pytest

from broker.act.gateway import SiteSilent
from broker.lifecycle import events as ev
from federation.handshake.values import KnownCluster
from federation.issuing import make_ca
from federation.jobs import canonical_bytes, parse_job_spec
from federation.tickets import TicketSigner
from tests.integration.session.federation_site import CLOCK, GIB, Broker, running

SPEC = {"run": "true"}
DAY_MS = 86_400_000


async def test_tickets_that_do_not_fit_are_refused_with_their_code(broker, state):
    broker.admit("eu", state)
    foreign = TicketSigner.from_seed(os.urandom(32))
    wrong = {
        "foreign-1": ({"in_ticket": {"signer": foreign}}, "ticket_invalid"),
        "expired-1": ({"in_ticket": {"not_after_ms": CLOCK.now_ms() - 5_000}}, "ticket_expired"),
        "elsewhere-1": ({"in_ticket": {"cluster": "us"}}, "wrong_cluster"),
        "another-1": ({"in_ticket": {"uid": "j9-1"}}, "ticket_invalid"),
        "changed-1": ({"spec": canonical_bytes(parse_job_spec({"run": "id"}))}, "spec_mismatch"),
        "garbage-1": ({"ticket": b"\x00" * 300}, "ticket_invalid"),
        "large-1": ({"memory_bytes_per_replica": 1000 * GIB}, "capacity_taken"),
        "nowhere-1": ({"pool": "h100"}, "unsupported"),
        "image-1": ({"in_ticket": {}}, "unsupported"),
    }
    async with running(state):
        await broker.connected("eu")
        for uid, (changes, code) in wrong.items():
            spec = SPEC | {"image": "a/b:1"} if uid == "image-1" else SPEC
            await broker.run(uid, spec, **changes)
            refused = await broker.event(uid, ev.Refused)
            assert refused.code == code, (uid, refused)
        await broker.run("good-1", SPEC)
        await broker.event("good-1", ev.Ended)
        for uid in wrong:
            assert [type(e) for e in broker.events[uid]] == [ev.Refused]


async def test_a_refused_attempt_stays_refused_when_it_comes_again(broker, state):
    broker.admit("eu", state)
    async with running(state):
        await broker.connected("eu")
        late = {"not_after_ms": CLOCK.now_ms() - 5_000}
        command = await broker.run("j1-1", SPEC, in_ticket=late)
        await broker.event("j1-1", ev.Refused)
        good = broker.dispatch("j1-1", SPEC, dispatch_seq=command.dispatch_seq)
        await broker.send(good)
        again = await broker.event("j1-1", ev.Refused, 2)
        assert again.code == "ticket_expired"


async def test_a_tenant_not_on_the_allow_list_is_refused(broker, state):
    broker.admit("eu", state)
    async with running(state, tenants=frozenset({"physics"})):
        await broker.connected("eu")
        await broker.run("j1-1", SPEC)
        assert (await broker.event("j1-1", ev.Refused)).code == "tenant_not_allowed"


async def test_a_command_of_an_older_epoch_has_no_effect(broker, state):
    broker.admit("eu", state)
    broker.facts.epoch_now = 7
    async with running(state) as agent:
        await broker.connected("eu")
        await broker.run("j1-1", SPEC, in_ticket={"epoch": 6})
        await broker.run("j2-1", SPEC)
        await broker.event("j2-1", ev.Ended)
        assert broker.events["j1-1"] == []
        assert agent.agent.journal.position.epoch == 7


async def test_a_foreign_certificate_gets_nothing_and_one_line(broker, state):
    broker.admit("eu", state, ca=make_ca("fed", now_ms=CLOCK.now_ms()))
    why = "this certificate is not signed by the CA of this federation; join it"
    broker.verdict = {"ok": False, "code": "certificate_foreign", "reason": why}
    async with running(state) as agent:
        assert await agent.refused("certificate_foreign") == why
        assert broker.sessions == []


async def test_an_expired_certificate_opens_no_session_and_is_told_why(broker, state):
    broker.admit("eu", state, now_ms=CLOCK.now_ms() - 2 * DAY_MS, life_ms=DAY_MS)
    broker.verdict = {"ok": False, "code": "certificate_expired", "reason": "expired 1 day ago"}
    async with running(state) as agent:
        assert await agent.refused("certificate_expired") == "expired 1 day ago"
        assert broker.sessions == []
        with pytest.raises(SiteSilent):
            await broker.send(broker.dispatch("j1-1", SPEC))


@pytest.mark.parametrize(
    ("known", "code"),
    [
        (None, "cluster_unknown"),
        (KnownCluster("removed"), "cluster_removed"),
        (KnownCluster("joined", joined_ms=CLOCK.now_ms() + 10**9), "certificate_revoked"),
    ],
)
async def test_a_cluster_not_of_the_federation_is_told_so(broker, state, known, code):
    broker.admit("eu", state)
    del broker.facts.clusters["eu"]
    if known is not None:
        broker.facts.clusters["eu"] = known
    async with running(state) as agent:
        assert await agent.refused(code)
        assert broker.sessions == []


async def test_a_broker_that_does_not_lead_sends_the_agent_on(broker, state):
    other = Broker(broker.ca, broker.signer)
    await other.start()
    try:
        broker.admit("eu", state)
        other.facts.clusters = broker.facts.clusters
        broker.facts.is_leading = False
        broker.facts.successor = other.address
        async with running(state) as agent:
            await other.connected("eu")
            await agent.link(lambda link: link.connected and link.address == other.address)
    finally:
        await other.close()


async def test_a_revoked_certificate_loses_its_session(broker, state):
    broker.admit("eu", state)
    async with running(state) as agent:
        opened = await broker.connected("eu")
        revoked = frozenset({opened.certificate_serial})
        broker.facts.clusters["eu"] = KnownCluster("joined", revoked_serials=revoked)
        broker.gateway.recheck()
        assert await agent.refused("certificate_revoked")
        with pytest.raises(SiteSilent):
            await broker.send(broker.dispatch("j1-1", SPEC))
