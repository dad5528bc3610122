"""The site keeps the last word: its people rule with and without an agent, without any broker."""

import asyncio
import json

from broker.lifecycle import events as ev
from broker.model.jobs import OutcomeKind
from tests.chaos.test_agent_kill import INVENTORY, Process
from tests.integration.session.test_command_line import cli

SLEEP = {"run": "sleep 60"}


async def told(broker, holds, what):
    """Wait until the newest capacity report says so."""
    await broker.until(
        lambda: bool(broker.capacities) and holds(broker.capacities[-1].capacity), what
    )
    return broker.capacities[-1].capacity


def free(capacity) -> int:
    return sum(g.free * g.count for pool in capacity.pools for g in pool.groups)


async def test_pause_evict_resume_and_ban_reach_the_broker_and_hold(broker, state):
    broker.admit("eu", state)
    (state / "agent.yaml").write_text(INVENTORY)
    where = ("--state-dir", str(state))
    agent = Process(state)
    await agent.start()
    try:
        await broker.connected("eu")
        await broker.run("j1-1", SLEEP)
        await broker.event("j1-1", ev.Started)
        code, out, _ = await cli("jobs", *where)
        head, row = (line.split() for line in out.splitlines())
        assert dict(zip(head, row, strict=False))["USER"] == "ann", "whom ban takes"
        code, out, _ = await cli("pause", "--reason", "cooling", "--json", *where)
        said = json.loads(out)
        assert code == 0 and said["agent_running"] and said["state"] == "paused"
        assert [row["uid"] for row in said["left"]] == ["j1-1"]
        code, out, _ = await cli("status", *where)
        assert "site         paused: cooling\n" in out, "at once, not with the agent's next news"
        report = await told(broker, lambda c: c.state == "paused", "a paused report")
        assert report.state_reason == "cooling" and free(report) == 0
        await broker.run("j2-1", SLEEP)
        refused = await broker.event("j2-1", ev.Refused)
        assert (refused.code, refused.text) == ("paused", "eu: paused: cooling")

        code, out, _ = await cli("evict", "j1", "--grace", "1s", *where)
        assert code == 0
        ended = await broker.event("j1-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.PREEMPTED
        assert "evicted by the site" in ended.outcome.text
        code, out, _ = await cli("jobs", "--json", *where)
        assert [row["outcome"] for row in json.loads(out) if row["uid"] == "j1-1"] == ["preempted"]

        await cli("ban", "ann", *where)
        await cli("resume", *where)
        report = await told(broker, lambda c: c.state == "open" and c.limits.banned, "bans")
        assert report.limits.banned == {"ann"}
        await broker.run("j3-1", SLEEP)
        assert (await broker.event("j3-1", ev.Refused)).code == "banned"
        code, _, err = await cli("unban", "bob", *where)
        assert code == 1 and "bob is not banned" in err
    finally:
        await agent.kill(15)


async def test_lesson_49_a_drain_ends_at_its_deadline_and_sends_away_what_is_left(broker, state):
    broker.admit("eu", state)
    (state / "agent.yaml").write_text(INVENTORY)
    where = ("--state-dir", str(state))
    agent = Process(state)
    await agent.start()
    try:
        await broker.connected("eu")
        await broker.run("j1-1", SLEEP)
        await broker.event("j1-1", ev.Started)
        code, out, _ = await cli("drain", "--deadline", "3s", "--grace", "1s", *where)
        assert code == 0 and "left: 1 attempts" in out and "j1-1" in out
        report = await told(broker, lambda c: c.state == "draining", "a draining report")
        assert report.state_reason.startswith("until ")
        ended = await broker.event("j1-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.PREEMPTED
    finally:
        await agent.kill(15)


async def test_an_eviction_without_an_agent_is_told_when_it_is_back(broker, state):
    broker.admit("eu", state)
    (state / "agent.yaml").write_text(INVENTORY)
    where = ("--state-dir", str(state))
    agent = Process(state)
    await agent.start()
    await broker.connected("eu")
    await broker.run("j1-1", SLEEP)
    await broker.event("j1-1", ev.Started)
    await agent.kill(9)
    code, out, _ = await cli("evict", "--grace", "1s", "--reason", "fire", *where)
    assert code == 0 and "no agent runs" in out
    code, out, _ = await cli("status", *where)
    assert code == 1 and "site         paused: fire, everything is evicted" in out
    await agent.start()
    try:
        ended = await broker.event("j1-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.PREEMPTED
        report = await told(broker, lambda c: c.state == "paused", "a paused report")
        assert "fire" in report.state_reason
    finally:
        await agent.kill(15)


async def test_site_rules_are_enforced_reported_and_read_anew(broker, state):
    broker.admit("eu", state)
    (state / "agent.yaml").write_text(INVENTORY)
    (state / "site.yaml").write_text("guest_share: {default: 50%}\nmax_walltime: 1h\n")
    agent = Process(state)
    await agent.start()
    try:
        await broker.connected("eu")
        report = await told(broker, lambda c: c.limits.guest_permille == 500, "the share")
        total = sum(g.total * g.count for pool in report.pools for g in pool.groups)
        assert free(report) == total // 2 and report.limits.max_walltime_s == 3_600
        await broker.run("j1-1", {"run": "true"}, max_runtime_s=7_200)
        assert (await broker.event("j1-1", ev.Refused)).code == "runtime_too_long"
        (state / "site.yaml").write_text("commands: {deny: [sh]}\n")
        report = await told(broker, lambda c: c.limits.guest_permille == 1_000, "other rules")
        assert free(report) == total
        await broker.run("j2-1", {"run": "true"})
        assert (await broker.event("j2-1", ev.Refused)).code == "command_not_allowed"
        (state / "site.yaml").write_text("comands: {}\n")
        await asyncio.sleep(3.5)
        code, out, _ = await cli("status", "--state-dir", str(state))
        assert code == 0 and "did you mean commands?; the ones before hold" in out
    finally:
        await agent.kill(15)
    code, _, err = await cli("run", "--state-dir", str(state))
    assert code == 1 and "did you mean commands?" in err


async def test_the_control_socket_is_for_its_user_only(broker, state):
    broker.admit("eu", state)
    (state / "agent.yaml").write_text(INVENTORY)
    agent = Process(state)
    await agent.start()
    try:
        await broker.connected("eu")
        await cli("pause", "--state-dir", str(state))
        assert (state / "control.sock").stat().st_mode & 0o777 == 0o600
    finally:
        await agent.kill(15)
