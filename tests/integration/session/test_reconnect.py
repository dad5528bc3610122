"""Nothing is lost and nothing happens twice when a session, a broker or an agent goes away."""

import asyncio

from broker.act.gateway import Forget, SetSlice, Stop
from broker.lifecycle import events as ev
from broker.model.jobs import OutcomeKind
from federation.runs import Runs
from tests.integration.session.federation_site import Broker, lines, running


def marking(file, seconds: float = 0) -> dict:
    return {"run": f"echo $TRADEWIND_ATTEMPT >> {file}; sleep {seconds}"}


async def test_unacknowledged_events_come_again_after_a_reconnect(broker, state):
    broker.admit("eu", state)
    broker.acknowledges = False
    async with running(state) as agent:
        await broker.connected("eu")
        await broker.run("j1-1", {"run": "true"})
        await broker.event("j1-1", ev.Ended)
        first = list(broker.events["j1-1"])
        broker.events.clear()
        broker.acknowledges = True
        await broker.stop()
        await broker.start()
        await broker.connected("eu", 2)
        await broker.event("j1-1", ev.Ended)
        assert broker.events["j1-1"] == first
        broker.events.clear()
        await broker.stop()
        await broker.start()
        await broker.connected("eu", 3)
        await broker.run("j2-1", {"run": "true"})
        await broker.event("j2-1", ev.Ended)
        assert "j1-1" not in broker.events
        assert len(agent.agent.outbox) == 0 or agent.agent.conversation.event_seq > 4


async def test_what_runs_goes_on_without_a_broker_and_is_told_afterwards(broker, state, tmp_path):
    broker.admit("eu", state)
    async with running(state):
        await broker.connected("eu")
        await broker.run("j1-1", marking(tmp_path / "marks", 1))
        await broker.event("j1-1", ev.Started)
        await broker.stop()
        await asyncio.sleep(2)
        await broker.start()
        ended = await broker.event("j1-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.SUCCEEDED
        assert lines(tmp_path / "marks") == ["j1-1"]


async def test_the_same_dispatch_again_launches_nothing_and_repeats_its_story(
    broker, state, tmp_path
):
    broker.admit("eu", state)
    async with running(state):
        await broker.connected("eu")
        command = await broker.run("j1-1", marking(tmp_path / "marks"))
        await broker.event("j1-1", ev.Ended)
        await asyncio.sleep(0.2)
        broker.facts.epoch_now = 2
        again = broker.dispatch(
            "j1-1", marking(tmp_path / "marks"), dispatch_seq=command.dispatch_seq
        )
        await broker.send(again)
        await broker.event("j1-1", ev.Ended, 2)
        kinds = [type(e) for e in broker.events["j1-1"]]
        assert kinds == [ev.Accepted, ev.Prepared, ev.Started, ev.Ended] * 2
        assert lines(tmp_path / "marks") == ["j1-1"]


async def test_stop_ends_what_runs_and_what_never_came(broker, state):
    broker.admit("eu", state)
    async with running(state):
        await broker.connected("eu")
        await broker.run("j1-1", {"run": "sleep 60"})
        await broker.event("j1-1", ev.Started)
        await broker.send(Stop("j1-1", "cancelled", 1), Stop("j2-1", "cancelled", 1))
        assert (await broker.event("j1-1", ev.Ended)).outcome.kind is OutcomeKind.CANCELLED
        never = await broker.event("j2-1", ev.Ended)
        assert never.outcome.kind is OutcomeKind.CANCELLED
        assert never.outcome.text == "never started here"
        # A launch that comes after its stop does not run.
        await asyncio.sleep(0.2)
        await broker.run("j2-1", {"run": "true"})
        await broker.event("j2-1", ev.Ended, 2)
        assert not broker.of("j2-1", ev.Started)


async def test_a_stop_right_behind_the_dispatch_wins_or_comes_too_late_but_ends_it(
    broker, state, tmp_path
):
    broker.admit("eu", state)
    sha = broker.blob(b"x")
    spec = {"run": "sleep 30", "files": [{"path": "x", "sha256": sha, "bytes": 1}]}
    async with running(state):
        await broker.connected("eu")
        command = broker.dispatch("j1-1", spec)
        await broker.send(command, Stop("j1-1", "cancelled", 0))
        ended = await broker.event("j1-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.CANCELLED


async def test_forget_drops_journal_entry_and_work_directory(broker, state):
    broker.admit("eu", state)
    async with running(state) as agent:
        await broker.connected("eu")
        await broker.run("j1-1", {"run": "true"})
        await broker.event("j1-1", ev.Ended)
        await asyncio.sleep(0.2)
        await broker.send(Forget("j1-1"))
        async with asyncio.timeout(5):
            while agent.agent.conversation.held("j1-1") is not None:
                await asyncio.sleep(0.02)
        assert not (state / "attempts" / "j1-1").exists()
        assert agent.agent.journal.attempt("j1-1") is None


async def test_an_agent_that_comes_back_adopts_what_runs(broker, state, tmp_path):
    broker.admit("eu", state)
    async with running(state):
        await broker.connected("eu")
        await broker.run("j1-1", marking(tmp_path / "marks", 2))
        await broker.event("j1-1", ev.Started)
    async with running(state):
        await broker.connected("eu", 2)
        ended = await broker.event("j1-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.SUCCEEDED
        assert lines(tmp_path / "marks") == ["j1-1"]
        assert not broker.sessions[1].disk_replaced


async def test_a_replaced_disk_adopts_what_its_scheduler_still_runs(broker, state, tmp_path):
    broker.admit("eu", state)
    async with running(state):
        await broker.connected("eu")
        command = await broker.run("j1-1", marking(tmp_path / "marks", 3))
        await broker.event("j1-1", ev.Started)
    for tail in ("", "-wal", "-shm"):
        (state / f"journal.db{tail}").unlink(missing_ok=True)
    broker.events.clear()
    async with running(state):
        opened = await broker.connected("eu", 2)
        assert opened.disk_replaced
        spec = marking(tmp_path / "marks", 3)
        adopt = {"adopt_only": True, "dispatch_seq": command.dispatch_seq}
        await broker.send(
            broker.dispatch("j1-1", spec, **adopt), broker.dispatch("j2-1", spec, **adopt)
        )
        lost = await broker.event("j2-1", ev.Ended)
        assert lost.outcome.kind is OutcomeKind.LOST
        ended = await broker.event("j1-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.SUCCEEDED
        assert ended.event_seq > 3, "numbers go on above what the broker has"
        assert lines(tmp_path / "marks") == ["j1-1"]


async def test_a_slice_of_an_attempt_nobody_knows_is_lost(broker, state):
    broker.admit("eu", state)
    async with running(state):
        await broker.connected("eu")
        await broker.send(SetSlice(broker.next_seq(), "j1-1", Runs(((0, 3),)), 1))
        assert (await broker.event("j1-1", ev.Ended)).outcome.kind is OutcomeKind.LOST


async def test_another_broker_takes_over_under_a_new_epoch(broker, state, tmp_path):
    broker.admit("eu", state)
    other = Broker(broker.ca, broker.signer)
    await other.start()
    try:
        other.facts.clusters, other.facts.epoch_now = broker.facts.clusters, 2
        other.facts.event_seqs = broker.facts.event_seqs
        async with running(state) as agent:
            broker.facts.addresses = (broker.address, other.address)
            await broker.connected("eu")
            await broker.run("j1-1", marking(tmp_path / "marks", 1))
            await broker.event("j1-1", ev.Started)
            broker.gateway.leave_office(other.address)
            broker.facts.is_leading = False
            await other.connected("eu")
            assert (await other.event("j1-1", ev.Ended)).outcome.kind is OutcomeKind.SUCCEEDED
            assert agent.agent.journal.position.epoch == 2
            assert lines(tmp_path / "marks") == ["j1-1"]
    finally:
        await other.close()


async def test_a_renewed_certificate_opens_a_second_stream_then_the_first_ends(broker, state):
    broker.admit("eu", state)
    async with running(state) as agent:
        first = await broker.connected("eu")
        broker.admit("eu", state)
        from regional_agent.identity import load_identity

        agent.agent.dialler.renewed(load_identity(state))
        second = await broker.connected("eu", 2)
        assert second.certificate_serial != first.certificate_serial
        assert second.instance == first.instance
        await broker.run("j1-1", {"run": "true"})
        await broker.event("j1-1", ev.Ended)
        await asyncio.sleep(1)
        assert len(broker.sessions) == 2 and agent.agent.dialler.connected


async def test_capacity_reports_reflect_commands_and_events(broker, state):
    broker.admit("eu", state)
    async with running(state):
        await broker.connected("eu")
        command = await broker.run("j1-1", {"run": "sleep 2"})
        await broker.event("j1-1", ev.Ended)

        def free(report):
            groups = report.capacity.pools[0].groups
            return sum(g.free * g.count for g in groups)

        def one_taken():
            return [c for c in broker.capacities if free(c) == 7]

        await broker.until(one_taken, "a report with one slot taken")
        taken = one_taken()[0].capacity
        assert taken.reflects_dispatch_seq == command.dispatch_seq
        seq = broker.of("j1-1", ev.Ended)[0].event_seq

        def given_back():
            return [c for c in broker.capacities if c.capacity.reflects_event_seq >= seq]

        await broker.until(given_back, "a report after the end")
        assert free(given_back()[0]) == 8
