"""Sandbox and control groups: what a nosy, greedy or stubborn job can and cannot do."""

import asyncio
import time
from pathlib import Path

import pytest

from regional_agent.act.isolation import IsolationMissing, Wanted, find_isolation
from regional_agent.act.keeper.groups import Groups, Limits, find_groups
from regional_agent.act.keeper.layout import group_parent
from regional_agent.act.schedulers.port import Feature, Outcome, OutcomeKind
from tests.keeper_site import PYTHON, Site, order, wait_for_file

SECRET = "a key nobody may read"  # noqa: S105 - what a nosy job looks for
GROUPS = find_groups("tradewind-test")
needs_groups = pytest.mark.skipif(isinstance(GROUPS, str), reason=f"control groups: {GROUPS}")


@pytest.fixture(autouse=True)
def only_isolated(isolation: bool) -> None:
    if not isolation:
        pytest.skip("about isolation")


def lay_secrets(site: Site) -> list[Path]:
    """What the agent keeps, and another job's files."""
    places = ["identity/key.pem", "journal.db", "control.sock", "keeper.sock", "site-state.json",
              "attempts/other-1/work/result", "attempts/other-1/order.json",
              "attempts/job-1/journal", "attempts/job-1/order.json"]  # fmt: skip
    paths = [site.state / place for place in places]
    for path in paths[:-2]:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(SECRET)
    return paths


async def test_a_nosy_job_reads_neither_the_agent_nor_another_job(site: Site) -> None:
    await site.scheduler.attempts()  # the keeper has made its own socket
    paths = lay_secrets(site)
    tries = "; ".join(f"test -e {path} && echo FOUND {path}; cat {path}" for path in paths)
    listing = f"find {site.state} -type f; find / -xdev -name key.pem -path '*identity*'"
    state = await site.run(order(run=f"{tries}; {listing}; echo end"))
    said = await site.log("job-1")
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED)
    assert "FOUND" not in said and SECRET not in said and "end" in said
    shown = [line for line in said.splitlines() if line.startswith(str(site.state))]
    assert shown == [str(site.state / "attempts/job-1/run")]


async def test_two_jobs_do_not_see_each_other(site: Site) -> None:
    await site.scheduler.submit(order("other-1", "echo up > up; exec sleep 61.5"))
    await wait_for_file(site.work("other-1") / "up")
    look = f"ps ax | grep -c '[s]leep 61.5'; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; " \
           f"ls {site.work('other-1')}; touch /tmp/mine; ls /tmp"  # fmt: skip
    await site.run(order(run=look))
    said = (await site.log("job-1")).splitlines()
    assert said[0] == "0" and "sleep 61.5" not in "\n".join(said[1:])
    assert "mine" in said and not Path("/tmp/mine").exists()


async def test_the_system_is_read_only_and_the_working_directory_is_not(site: Site) -> None:
    run = "touch /usr/x || echo no; touch /etc/x || echo no; echo yes > here; cat here"
    await site.run(order(run=run))
    said = [line for line in (await site.log("job-1")).splitlines() if "touch" not in line]
    assert said == ["no", "no", "yes"]


async def test_no_privilege_is_left_and_none_can_be_got(site: Site) -> None:
    run = f"grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status; umount {site.state}; echo end"
    await site.run(order(run=run))
    said = await site.log("job-1")
    assert "CapEff:\t0000000000000000" in said and "NoNewPrivs:\t1" in said
    assert "end" in said and (site.state / "attempts").exists()


@pytest.mark.parametrize(
    "changes, sees", [({}, False), ({"network": True}, True), ({"replicas": 2}, True)]
)
async def test_the_network_is_for_those_that_need_it(site: Site, changes, sees) -> None:
    await site.run(order(run="cat /proc/net/dev; ls /sys/class/net", **changes))
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    host = {line.split(":")[0].strip() for line in lines}
    if host <= {"lo"}:
        pytest.skip("this machine has no network but loopback")
    said = await site.log("job-1")
    devices = {line.split(":")[0].strip() for line in said.splitlines() if ":" in line}
    assert bool(devices & (host - {"lo"})) == sees


async def test_an_open_directory_of_the_site_is_writable_where_it_says_so(tmp_path: Path) -> None:
    shared = tmp_path / "scratch"
    shared.mkdir()
    site = Site(tmp_path / "state")
    wanted = Wanted("sandboxed", writable=(str(shared),))
    site.isolation = find_isolation(wanted, site.state, limits=True)
    site.again()
    await site.run(order(run=f"echo kept > {shared}/checkpoint"))
    assert (shared / "checkpoint").read_text() == "kept\n"
    await site.close()


@needs_groups
async def test_more_memory_than_asked_for_is_out_of_memory_at_once(site: Site) -> None:
    code = "x = bytearray(400_000_000); x[::4096] = b'x' * len(x[::4096])"
    began_s = time.monotonic()
    state = await site.run(order(argv=(PYTHON, "-c", code), memory_bytes=100 * 2**20))
    assert state.outcome == Outcome(OutcomeKind.OUT_OF_MEMORY)
    assert time.monotonic() - began_s < 10


@needs_groups
async def test_a_child_that_runs_out_of_memory_is_told_too(site: Site) -> None:
    code = "x = bytearray(400_000_000); x[::4096] = b'x' * len(x[::4096])"
    run = f"{PYTHON} -c \"{code}\"; exit 3"
    state = await site.run(order(run=run, memory_bytes=100 * 2**20))
    assert state.outcome == Outcome(OutcomeKind.OUT_OF_MEMORY)


@needs_groups
async def test_cpu_time_is_bound_to_what_was_asked_for(site: Site) -> None:
    code = "import time; t = time.time()\nwhile time.time() < t + 2: pass"
    state = await site.run(order(argv=(PYTHON, "-c", code), cpus_milli=200))
    assert 150 <= state.usage.cpu_ms <= 900, state.usage


@needs_groups
async def test_nothing_escapes_a_kill_whatever_it_calls_itself(site: Site) -> None:
    """Another session, another group, another environment: what marks a process by name alone
    would miss it."""
    hide = "setsid env -i sh -c 'trap \"\" TERM; echo up > up; sleep 71.25' & sleep 60"
    await site.scheduler.submit(order(run=hide))
    await wait_for_file(site.work("job-1") / "up")
    await site.scheduler.cancel("job-1", grace_s=0)
    assert (await site.ended("job-1")).outcome == Outcome(OutcomeKind.CANCELLED)
    await asyncio.sleep(0.1)
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not [line for line in lines if b"71.25" in line]


@needs_groups
async def test_groups_go_with_their_tasks(site: Site) -> None:
    await site.run(order(run="true"))
    hello = await site.scheduler.capabilities()
    assert {Feature.SANDBOX, Feature.CONTROL_GROUPS} <= hello.features
    mine = group_parent(site.state)
    assert not list(Path("/sys/fs/cgroup").glob(f"*/**/{mine}/job-1.*"))


def test_groups_of_the_unified_hierarchy_are_written_as_the_kernel_wants_them(
    tmp_path: Path,
) -> None:
    inner = tmp_path / "ours"
    inner.mkdir()
    groups = Groups(dict.fromkeys(("memory", "pids", "cpu"), inner), unified=True)
    groups.make("job-1.0.0", Limits(2**20, 1_500))
    made = {file.name: file.read_text() for file in (inner / "job-1.0.0").iterdir()}
    assert made == {"pids.max": "16384", "memory.max": "1048576", "memory.swap.max": "0",
                    "cpu.max": "150000 100000"}  # fmt: skip
    (inner / "job-1.0.0/memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    assert groups.ran_out_of_memory("job-1.0.0") and not groups.ran_out_of_memory("job-2.0.0")
    groups.kill("job-1.0.0")
    assert (inner / "job-1.0.0/cgroup.kill").read_text() == "1"


def test_a_sandbox_that_is_demanded_and_missing_is_an_error(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IsolationMissing, match="bwrap is not installed"):
        find_isolation(Wanted("sandboxed"), tmp_path, limits=True)
    found = find_isolation(Wanted("auto"), tmp_path, limits=True)
    assert found.grade == "shared-uid" and "not installed" in found.reason
