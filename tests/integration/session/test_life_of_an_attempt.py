"""Dispatch to end over a real session: every event once and in order, results and logs back."""

from broker.lifecycle import events as ev
from broker.model.jobs import OutcomeKind
from federation.runs import Runs
from tests.integration.session.federation_site import lines, running


async def test_a_job_is_accepted_prepared_started_and_ends_with_its_log(broker, state):
    broker.admit("eu", state)
    async with running(state):
        opened = await broker.connected("eu")
        assert (opened.scheduler, opened.isolation) == ("process", "shared-uid")
        assert opened.handshake_ms >= 0 and not opened.disk_replaced
        command = await broker.run("j1-1", {"run": "echo hello; exit 3"})
        ended = await broker.event("j1-1", ev.Ended)
        kinds = [type(e) for e in broker.events["j1-1"]]
        assert kinds == [ev.Accepted, ev.Prepared, ev.Started, ev.Ended]
        assert [e.event_seq for e in broker.events["j1-1"]] == [1, 2, 3, 4]
        assert broker.of("j1-1", ev.Accepted)[0].dispatch_seq == command.dispatch_seq
        assert (ended.outcome.kind, ended.outcome.exit_code) == (OutcomeKind.FAILED, 3)
        assert ended.log_bytes == (("output", 6),)
        part = await broker.gateway.read_log("eu", "j1-1", "output", 0, 1000)
        assert (part.data, part.total_bytes, part.complete) == (b"hello\n", 6, True)
        part = await broker.gateway.read_log("eu", "j1-1", "output", 4, 1000)
        assert (part.data, part.offset) == (b"o\n", 4)


async def test_code_goes_in_and_results_come_out(broker, state):
    broker.admit("eu", state)
    sha = broker.blob(b"print(6 * 7)\n")
    spec = {
        "command": ["/bin/sh", "-c", "mkdir out && python3 main.py > out/answer"],
        "files": [{"path": "main.py", "sha256": sha, "bytes": 13}],
        "outputs": ["out/answer"],
    }
    async with running(state):
        await broker.connected("eu")
        await broker.run("j2-1", spec)
        ended = await broker.event("j2-1", ev.Ended)
        assert ended.outcome.kind is OutcomeKind.SUCCEEDED, ended
        assert [(o.path, o.size_bytes) for o in ended.outputs] == [("out/answer", 3)]
        assert broker.blobs[ended.outputs[0].sha256] == b"42\n"


async def test_a_blob_nobody_has_refuses_the_attempt(broker, state):
    broker.admit("eu", state)
    spec = {"run": "cat x", "files": [{"path": "x", "sha256": "0" * 64, "bytes": 1}]}
    async with running(state):
        await broker.connected("eu")
        await broker.run("j3-1", spec)
        refused = await broker.event("j3-1", ev.Refused)
        assert refused.code == "unknown_blob"


async def test_a_slice_runs_its_tasks_grows_and_reports_runs(broker, state, tmp_path):
    broker.admit("eu", state)
    marks = tmp_path / "marks"
    script = f"echo $TRADEWIND_TASK >> {marks}; [ $TRADEWIND_TASK != 3 ] && sleep 0.1"
    async with running(state):
        await broker.connected("eu")
        tasks = Runs(((0, 4),))
        await broker.run("j4-1", {"run": script, "array": "0-9"}, tasks=tasks, width=2)
        await broker.event("j4-1", ev.Started)
        seq = broker.next_seq()
        from broker.act.gateway import SetSlice

        await broker.send(SetSlice(seq, "j4-1", Runs(((0, 7),)), 2))
        confirmed = await broker.event("j4-1", ev.SliceSet)
        assert (confirmed.dispatch_seq, confirmed.tasks) == (seq, Runs(((0, 7),)))
        ended = await broker.event("j4-1", ev.Ended)
        told = broker.of("j4-1", ev.TasksChanged)
        started, succeeded, failed = Runs(), Runs(), Runs()
        for change in told:
            started = started.union(change.started)
            succeeded = succeeded.union(change.succeeded)
            for group in change.failed:
                assert group.exit_code == 1
                failed = failed.union(group.tasks)
        assert started == Runs(((0, 7),))
        assert failed == Runs(((3, 3),))
        assert succeeded == Runs(((0, 2), (4, 7)))
        assert ended.outcome.kind is OutcomeKind.FAILED
        assert sorted(lines(marks)) == [str(n) for n in range(8)]
