"""One program under the keeper: how it is started, how it ends, what is told of it."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from regional_agent.act.schedulers.port import Outcome, OutcomeKind, Phase, Submitted
from regional_agent.session.ledger import Place
from tests.keeper_site import PYTHON, Site, alive, order, wait_for_file, wait_gone


async def test_success_with_output_and_usage(site: Site) -> None:
    state = await site.run(order(run="echo out; echo err >&2; exit 0"))
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED)
    assert state.submitted_ms <= state.started_ms <= state.ended_ms
    assert state.usage.max_rss_bytes > 0
    assert await site.log("job-1") == "out\nerr\n"


async def test_exit_code_is_kept(site: Site) -> None:
    state = await site.run(order(run="exit 42"))
    assert state.outcome == Outcome(OutcomeKind.FAILED, exit_code=42)


async def test_death_by_signal_is_told_apart_from_exit_codes(site: Site) -> None:
    state = await site.run(order(run="kill -SEGV $$"))
    assert state.outcome == Outcome(OutcomeKind.SIGNALLED, signal=signal.SIGSEGV)


async def test_a_command_that_is_not_there(site: Site) -> None:
    state = await site.run(order(argv=("no-such-program", "x")))
    assert state.outcome == Outcome(OutcomeKind.FAILED, exit_code=127)
    assert "no-such-program" in await site.log("job-1")


async def test_a_file_that_is_no_program(site: Site) -> None:
    state = await site.run(order(argv=("/etc/passwd",)))
    assert state.outcome == Outcome(OutcomeKind.FAILED, exit_code=126)


async def test_script_with_its_own_interpreter(site: Site) -> None:
    run = f"#!{PYTHON}\nimport sys\nprint('from python', len(sys.argv))\n"
    state = await site.run(order(run=run))
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED)
    assert await site.log("job-1") == "from python 1\n"


async def test_environment_is_built_from_nothing(site: Site, tmp_path: Path) -> None:
    os.environ["TW_AGENT_SECRET"] = "do-not-leak"
    try:
        await site.run(order(run="env", env=(("COLOUR", "blue"), ("TRADEWIND_JOB", "forged"))))
    finally:
        del os.environ["TW_AGENT_SECRET"]
    env = dict(line.split("=", 1) for line in (await site.log("job-1")).splitlines())
    assert env["COLOUR"] == "blue"
    assert env["HOME"] == env["PWD"] == str(site.work("job-1"))
    assert env["TRADEWIND_JOB"] == "job"
    assert env["TRADEWIND_ATTEMPT"] == "job-1"
    assert env["RANK"] == "0" and env["WORLD_SIZE"] == "1"
    expected = {"PATH", "LANG", "TZ", "HOME", "PWD", "COLOUR", "RANK", "LOCAL_RANK"}
    expected |= {"WORLD_SIZE", "OLDPWD", "_", "SHLVL"}
    assert {name for name in env if not name.startswith("TRADEWIND_")} <= expected


async def test_no_descriptor_of_the_keeper_gets_through(site: Site) -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/fd')), oct(os.umask(0)))"
    await site.run(order(argv=(PYTHON, "-c", code)))
    # 3 is the directory being listed.
    assert await site.log("job-1") == "['0', '1', '2', '3'] 0o77\n"


async def test_stdin_is_empty_and_session_its_own(site: Site) -> None:
    # In a sandbox the leader of the session stays outside, which shows as 0.
    code = "import os, sys; print(repr(sys.stdin.read()), os.getsid(0) in (0, os.getpid()))"
    await site.run(order(argv=(PYTHON, "-c", code)))
    assert await site.log("job-1") == "'' True\n"


async def test_cards_are_shown_and_slots_are_not(site: Site) -> None:
    seats = (Place("h100", 2, (3, 5)),)
    await site.run(order("a-1", "env", accelerator="H100", places=seats))
    shown = await site.log("a-1")
    assert "CUDA_VISIBLE_DEVICES=3,5\n" in shown
    assert "TRADEWIND_ACCELERATORS=H100:3,5\n" in shown
    await site.run(order("b-1", "env", accelerator="CPU", places=(Place("cpu", 0, (1,)),)))
    assert "CUDA_VISIBLE_DEVICES=\n" in await site.log("b-1")


async def test_submitting_twice_runs_once(site: Site) -> None:
    run = "echo x >> ran; sleep 0.2"
    first = await site.scheduler.submit(order(run=run))
    second = await site.scheduler.submit(order(run=run))
    assert (first, second) == (Submitted("job-1", True), Submitted("job-1", False))
    await site.ended("job-1")
    assert await site.scheduler.submit(order(run=run)) == Submitted("job-1", False)
    await asyncio.sleep(0.1)
    assert (site.work("job-1") / "ran").read_text() == "x\n"


async def test_log_is_read_by_offset_while_it_grows(site: Site) -> None:
    await site.scheduler.submit(
        order(run="echo one; while [ ! -e go ]; do sleep 0.02; done; echo two")
    )
    logs = site.state / "attempts/job-1/logs/output"
    await wait_for_file(logs)
    first = await site.scheduler.read_log("job-1", "output", 0, 100)
    assert (first.data, first.total, first.complete) == (b"one\n", 4, False)
    (site.work("job-1") / "go").touch()
    await site.ended("job-1")
    rest = await site.scheduler.read_log("job-1", "output", first.total, 2)
    assert (rest.data, rest.offset, rest.total, rest.complete) == (b"tw", 4, 8, True)
    tail = await site.scheduler.read_log("job-1", "output", -4, 100)
    assert (tail.data, tail.offset) == (b"two\n", 4)
    assert [e.stream for e in await site.scheduler.log_extents("job-1")] == ["output"]


async def test_a_name_that_is_no_stream_is_refused(site: Site) -> None:
    for name in ("../order.json", "task-x", "", "stdin", "output.r0"):
        with pytest.raises(ValueError, match="not a log stream"):
            await site.scheduler.read_log("job-1", name, 0, 10)


async def test_endless_output_is_cut_and_says_so(site: Site) -> None:
    code = (
        "import sys\n"
        "for n in range(90 * 64):\n"
        " sys.stdout.write(('%09d' % n + 'y' * 1014 + '\\n') * 16)"
    )
    await site.run(order(argv=(PYTHON, "-c", code)), timeout_s=60)
    start = await site.scheduler.read_log("job-1", "output", 0, 9)
    assert start.data == b"000000000"
    assert start.total <= 16 * 2**20
    assert start.truncated and start.complete
    tail = await site.scheduler.read_log("job-1", "output", -1024, 9)
    assert tail.data == b"%09d" % (90 * 64 - 1)
    size = (site.state / "attempts/job-1/logs/output").stat().st_size
    assert size <= 16 * 2**20


async def test_cancel_gives_the_program_its_grace(site: Site) -> None:
    run = "trap 'echo saved > saved; exit 0' TERM; echo up > up; while :; do sleep 0.05; done"
    await site.scheduler.submit(order(run=run))
    await wait_for_file(site.work("job-1") / "up")
    await site.scheduler.cancel("job-1", grace_s=5)
    state = await site.ended("job-1")
    assert state.outcome == Outcome(OutcomeKind.CANCELLED)
    assert (site.work("job-1") / "saved").exists()


async def test_what_ignores_the_signal_is_killed_with_all_it_started(site: Site) -> None:
    run = "trap '' TERM; sh -c 'echo $$ > child; sleep 60' & echo $$ > parent; sleep 60"
    await site.scheduler.submit(order(run=run))
    for name in ("child", "parent"):
        await wait_for_file(site.work("job-1") / name)
    began_s = time.monotonic()
    await site.scheduler.cancel("job-1", grace_s=1)
    state = await site.ended("job-1")
    assert state.outcome == Outcome(OutcomeKind.CANCELLED)
    assert 0.9 < time.monotonic() - began_s < 4
    await site.until_nothing_runs("job-1")


async def test_a_child_may_save_after_its_shell_has_died(site: Site) -> None:
    """A plain shell dies of SIGTERM at once; the program it runs still has the grace."""
    save = (
        "import os, signal, time\n"
        "def save(*_):\n"
        " time.sleep(0.7); open('saved', 'w').write('x'); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, save); open('up', 'w').write('x'); time.sleep(60)"
    )
    (site.work("job-1")).mkdir(parents=True)
    (site.work("job-1") / "save.py").write_text(save)
    await site.scheduler.submit(order(run=f"{PYTHON} save.py; echo never"))
    await wait_for_file(site.work("job-1") / "up")
    await site.scheduler.cancel("job-1", grace_s=10)
    state = await site.ended("job-1")
    assert (site.work("job-1") / "saved").exists()
    assert state.outcome == Outcome(OutcomeKind.CANCELLED)


async def test_cancel_before_the_launch_wins_over_it(site: Site) -> None:
    await site.scheduler.cancel("job-1", grace_s=0)
    assert await site.scheduler.submit(order(run="touch ran")) == Submitted("job-1", False)
    state = await site.ended("job-1")
    assert state.outcome == Outcome(OutcomeKind.CANCELLED)
    assert not (site.work("job-1") / "ran").exists()


async def test_cancel_in_the_same_breath_as_the_launch(site: Site) -> None:
    for n in range(20):
        await asyncio.gather(
            site.scheduler.submit(order(f"job{n}-1", "sleep 30")),
            site.scheduler.cancel(f"job{n}-1", grace_s=n % 2),
        )
        assert (await site.ended(f"job{n}-1")).outcome == Outcome(OutcomeKind.CANCELLED)


async def test_cancel_after_the_end_changes_nothing(site: Site) -> None:
    await site.run(order())
    await site.scheduler.cancel("job-1", grace_s=0)
    assert (await site.state_of("job-1")).outcome == Outcome(OutcomeKind.SUCCEEDED)


async def test_max_runtime_lets_the_program_save(site: Site) -> None:
    run = "trap 'echo saved > saved; exit 0' TERM; while :; do sleep 0.05; done"
    state = await site.run(order(run=run, max_runtime_s=1))
    assert state.outcome == Outcome(OutcomeKind.TIMED_OUT)
    assert (site.work("job-1") / "saved").exists()
    assert 900 < state.usage.wall_ms < 4000


async def test_a_stopped_program_is_woken_for_its_end(site: Site) -> None:
    run = "trap 'echo saved > saved; exit 0' TERM; kill -STOP $$; sleep 60"
    state = await site.run(order(run=run, max_runtime_s=1))
    assert state.outcome == Outcome(OutcomeKind.TIMED_OUT)
    assert (site.work("job-1") / "saved").exists()


async def test_memory_over_the_limit_ends_the_program(site: Site) -> None:
    code = (
        "import time; x = bytearray(300_000_000); x[::4096] = b'x' * len(x[::4096]); time.sleep(60)"
    )
    state = await site.run(order(argv=(PYTHON, "-c", code), memory_bytes=100 * 2**20))
    assert state.outcome == Outcome(OutcomeKind.OUT_OF_MEMORY)
    # A control group ends it at the limit, without one it was seen over it.
    assert state.usage.max_rss_bytes > (90 if site.isolated else 100) * 2**20


async def test_leftovers_end_with_their_task(site: Site) -> None:
    """Neither a background child nor a daemon in a session of its own outlives the task."""
    run = "sleep 60 & echo $! > plain; setsid sh -c 'echo $$ > daemon; sleep 60' & sleep 0.3"
    state = await site.run(order(run=run))
    assert state.outcome == Outcome(OutcomeKind.SUCCEEDED)
    await site.until_nothing_runs("job-1")


async def test_no_zombies_are_left(site: Site) -> None:
    for n in range(5):
        await site.run(order(f"job{n}-1", "(sleep 0.01 &) ; true"))
    children = Path(f"/proc/{site.keeper_pid()}/task/{site.keeper_pid()}/children")
    await asyncio.sleep(0.2)
    assert children.read_text().split() == []


async def test_usage_of_a_running_program(site: Site) -> None:
    await site.scheduler.submit(
        order(argv=(PYTHON, "-c", "print('up', flush=True)\nwhile True: pass"))
    )
    await wait_for_file(site.state / "attempts/job-1/logs/output")
    await asyncio.sleep(0.5)
    sample = (await site.scheduler.usage(["job-1", "other-1"]))["job-1"]
    assert sample.cpu_ms > 0 and sample.rss_bytes > 0
    assert sample.processes == (3 if site.isolated else 1)
    await site.scheduler.cancel("job-1", 0)
    await site.ended("job-1")
    assert await site.scheduler.usage(["job-1"]) == {}


async def test_forget_takes_everything_away(site: Site) -> None:
    await site.scheduler.submit(order(run="sleep 30"))
    with pytest.raises(ValueError, match="has not ended"):
        await site.scheduler.forget("job-1")
    await site.scheduler.cancel("job-1", 0)
    await site.ended("job-1")
    await site.scheduler.forget("job-1")
    await site.scheduler.forget("job-1")
    assert await site.scheduler.find("job-1") is None
    assert (await site.state_of("job-1")).phase == Phase.UNKNOWN
    assert list((site.state / "attempts").iterdir()) == []
    assert list((site.state / "trash").iterdir()) == []


async def test_one_card_is_never_given_twice(site: Site) -> None:
    seats = (Place("h100", 0, (0, 1)),)
    await site.scheduler.submit(order("a-1", "sleep 30", places=seats))
    refusal = await site.scheduler.submit(order("b-1", places=(Place("h100", 0, (1,)),)))
    assert getattr(refusal, "code", None) == "capacity_taken"
    assert await site.scheduler.find("b-1") is None
    await site.scheduler.cancel("a-1", 0)
    await site.ended("a-1")
    assert isinstance(await site.scheduler.submit(order("b-1", places=seats)), Submitted)


async def test_declared_cpus_are_a_bound(tmp_path: Path) -> None:
    site = Site(tmp_path / "state", cpus_milli=2000)
    await site.scheduler.submit(order("a-1", "sleep 30", cpus_milli=1500))
    refusal = await site.scheduler.submit(order("b-1", cpus_milli=600))
    assert getattr(refusal, "code", None) == "capacity_taken"
    assert isinstance(await site.scheduler.submit(order("c-1", cpus_milli=500)), Submitted)
    await site.close()


async def test_state_directory_with_a_long_path(tmp_path: Path) -> None:
    """The path of a Unix socket has room for 107 bytes; a home directory may be longer."""
    site = Site(tmp_path / ("d" * 100) / ("e" * 100))
    assert (await site.run(order())).outcome == Outcome(OutcomeKind.SUCCEEDED)
    await site.close()


async def test_keeper_leaves_when_idle_and_comes_back_when_needed(tmp_path: Path) -> None:
    site = Site(tmp_path / "state", "--idle-exit-s", "0.3")
    await site.run(order(run="exit 7"))
    first = site.keeper_pid()
    await site.scheduler.close()
    wait_gone(first)
    assert (await site.state_of("job-1")).outcome == Outcome(OutcomeKind.FAILED, exit_code=7)
    assert site.keeper_pid() != first and alive(site.keeper_pid())
    await site.close()


async def test_files_and_socket_are_for_our_user_only(site: Site) -> None:
    await site.run(order(run="echo x; touch made"))
    modes = {path.stat().st_mode & 0o077 for path in site.state.rglob("*")}
    assert modes == {0}
