"""The grade a site claims is one it gives: a nosy job at a real agent, and jobs that ask more."""

import json

import pytest

from broker.lifecycle import events as ev
from broker.model.jobs import OutcomeKind
from tests.chaos.test_agent_kill import INVENTORY, Process
from tests.integration.session.test_command_line import cli
from tests.keeper_site import isolation_is_possible

NO_SANDBOX = isolation_is_possible()
NOSY = """
found=0
for file in "$STATE"/identity/* "$STATE"/journal.db "$STATE"/*.sock "$STATE"/cache.db \
    "$STATE"/attempts/other-1/work/mine "$STATE"/attempts/*/order.json; do
  test -e "$file" && { echo "SEES $file"; found=1; }
done
exit $found
"""


async def agent_with(broker, state, isolation: str) -> Process:
    broker.admit("eu", state)
    text = INVENTORY.replace("shared-uid", isolation)
    (state / "agent.yaml").write_text(f"{text}env: {{STATE: {state}}}\n")
    agent = Process(state)
    await agent.start()
    return agent


@pytest.mark.skipif(bool(NO_SANDBOX), reason=f"needs bubblewrap: {NO_SANDBOX}")
async def test_a_nosy_job_finds_nothing_of_a_site_that_claims_to_be_sandboxed(broker, state):
    agent = await agent_with(broker, state, "auto")
    try:
        opened = await broker.connected("eu")
        assert opened.isolation == "sandboxed" and "sandbox" in opened.capabilities
        await broker.run("other-1", {"run": "echo mine > mine; sleep 60"})
        await broker.event("other-1", ev.Started)
        await broker.run("j1-1", {"run": NOSY, "resources": {"isolation": "sandboxed"}})
        ended = await broker.event("j1-1", ev.Ended)
        code, said, _ = await cli("logs", "j1-1", "--state-dir", str(state))
        assert ended.outcome.kind is OutcomeKind.SUCCEEDED, said
        await broker.run("j2-1", {"run": "true", "resources": {"isolation": "hard"}})
        refused = await broker.event("j2-1", ev.Refused)
        assert refused.code == "isolation_too_weak"
        assert refused.text == "eu: isolation too weak: needs hard, has sandboxed"
        code, out, _ = await cli("doctor", "--json", "--state-dir", str(state))
        checks = {check["name"]: check for check in json.loads(out)}
        assert checks["isolation"]["text"] == "grade sandboxed"
        assert {"sandbox", "control groups"} <= checks.keys()
    finally:
        await agent.kill(15)


async def test_the_same_job_sees_it_all_where_the_site_claims_nothing(broker, state):
    """The nosy job is able to find what it looks for: else the test above would show nothing."""
    agent = await agent_with(broker, state, "shared-uid")
    try:
        assert (await broker.connected("eu")).isolation == "shared-uid"
        await broker.run("j1-1", {"run": NOSY})
        ended = await broker.event("j1-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.FAILED
        await broker.run("j2-1", {"run": "true", "resources": {"isolation": "sandboxed"}})
        assert (await broker.event("j2-1", ev.Refused)).code == "isolation_too_weak"
    finally:
        await agent.kill(15)


async def test_paths_a_sandbox_opens_are_absolute(broker, state):
    broker.admit("eu", state)
    (state / "agent.yaml").write_text("isolation: sandboxed\nwritable: [scratch]\n")
    code, _, err = await cli("run", "--state-dir", str(state))
    assert code == 1 and "'scratch' is no absolute path below /, such as /scratch" in err
