from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

import pytest
from aiohttp import web

from tests.unit.cli.conftest import Cli
from tests.unit.client.speaking_server import (
    JOB,
    SpeakingServer,
    ended,
    job_object,
    piece,
    problem,
)

PLAN = {
    "phase": "queued", "summary": "Would start in us-east at once.",
    "candidates": [
        {"cluster": "eu-west", "pool": "a100", "feasible": True, "chosen": False,
         "start_delay_s": 30.0, "rate_usd_per_hour": 40.0, "total_usd": 41.2,
         "egress_usd": 1.2, "rtt_ms": 84.0, "why_not": {"text": "costs more", "advice": ""}},
        {"cluster": "us-east", "pool": "h100", "feasible": True, "chosen": True,
         "start_delay_s": 0.4, "rate_usd_per_hour": 20.0, "total_usd": 20.5, "egress_usd": 0,
         "rtt_ms": 2.1, "why_not": None},
    ],
    "waiting": [], "smallest_change": None,
    "decision": {"cycle": "c1", "status": "optimal", "gap": 0.0, "cpu_s": 0.02},
}  # fmt: skip
END = ("end", {"phase": "ended", "outcome": {"kind": "succeeded"}})


def test_submit_shows_the_candidates_then_the_id_last(
    cli: Cli, server: SpeakingServer
) -> None:
    server.answers["plan"] = PLAN
    ran = cli("submit", "--", "python", "-c", "print(42)")
    assert ran.code == 0
    lines = ran.out.splitlines()
    (job_id,) = server.jobs
    assert lines[-1] == job_id
    assert [line.split()[:2] for line in lines if "CHOSEN" in line] == [["CHOSEN", "us-east"]]
    assert server.jobs[job_id]["spec"]["command"] == ["python", "-c", "print(42)"]


def test_options_become_the_spec(cli: Cli, server: SpeakingServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x")
    ran = cli(
        "submit", "-q", "--name", "n1", "--tenant", "team-a", "--cpus", "2.5", "--memory",
        "8GiB", "--accelerators", "H100:8", "--replicas", "2", "--array", "0-9%3",
        "--priority", "500", "--max-runtime", "2h30m", "--region", "us-east", "--region",
        "eu-west", "--cluster", "c1", "--max-price", "2.5", "--budget", "100", "--spot", "--env",
        "A=b=c", "--file", "train.py", "--output", "model.pt", "--label", "team=x",
        "--value-of-time", "3", "--idempotency-key", "k9", "--", "python", "train.py", "--epochs",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    (job,) = server.jobs.values()
    spec = job["spec"]
    assert spec["command"] == ["python", "train.py", "--epochs"]
    assert spec["resources"] == {
        "replicas": 2, "cpus": 2.5, "memory": "8GiB", "accelerators": "H100:8",
    }  # fmt: skip
    assert spec["placement"] == {
        "regions": ["us-east", "eu-west"], "clusters": ["c1"], "spot": True, "budget_usd": 100,
        "max_price_usd_per_accelerator_hour": 2.5,
    }  # fmt: skip
    assert (spec["name"], spec["array"], spec["env"]) == ("n1", "0-9%3", {"A": "b=c"})
    assert spec["files"][0]["path"] == "train.py"
    assert server.blobs[hashlib.sha256(b"x").hexdigest()] == b"x"
    assert "k9" in server.keys


def test_a_dry_run_stores_nothing(cli: Cli, server: SpeakingServer, tmp_path: Path) -> None:
    server.answers["plan"] = PLAN
    (tmp_path / "job.yaml").write_text("run: python train.py\nworkdir: .\n")
    ran = cli("submit", "--dry-run", "job.yaml")
    assert ran.code == 0
    assert "CHOSEN" in ran.out
    assert not server.jobs and not server.blobs
    assert cli("plan", "job.yaml").out == ran.out
    assert json.loads(cli("submit", "--dry-run", "--json", "job.yaml").out) == PLAN


def test_paths_of_a_job_file_start_where_it_lies(
    cli: Cli, server: SpeakingServer, tmp_path: Path
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/a.py").write_text("a")
    (tmp_path / "deep/job.yaml").write_text(
        "run: python a.py\nfiles: [a.py]\nretry: {on: [lost]}\n"
    )
    ran = cli("submit", "-q", "deep/job.yaml")
    assert (ran.code, ran.err) == (0, "")
    (job,) = server.jobs.values()
    assert (job["name"], job["spec"]["files"][0]["path"]) == ("job", "a.py")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rnu: x\n", "did you mean `run`"),
        ("run: x\nresources: {memory: 64}\n", "resources.memory"),
        ("run: x\nrun: y\n", "stands twice"),
        ("a: &a [x]\nb: *a\n", "aliases are not used"),
        ("run: [\n", "is not YAML"),
        ("- run\n", "mapping of keys"),
        ("run: x\nresources: 3\n", "mapping"),
    ],
)
def test_a_bad_job_file_is_refused_here_with_the_remedy(
    cli: Cli, server: SpeakingServer, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "job.yaml").write_text(text)
    ran = cli("submit", "job.yaml")
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert not server.requests


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit"], "nothing to run"),
        (["submit", "python", "x.py"], "unexpected extra argument"),
        (["submit", "nowhere"], "tradewind submit -- nowhere"),
        (["submit", "--env", "A", "--", "x"], "NAME=VALUE"),
        (["submit", "--memory", "64", "--", "x"], "64GiB"),
        (["submit", "--max-price", "nan", "--", "x"], "max_price"),
        (["submit", "--nmae", "x"], "No such option"),
        (["sumbit"], "did you mean submit"),
        (["wait", "--timeout", "5", JOB], "5s, 5m or 5h"),
        (["clusters", "remove", "us-east-1"], "--yes"),
        (["clusters", "shwo"], "show"),
    ],
)
def test_wrong_words_are_bad_input_and_say_what_is_right(
    cli: Cli, server: SpeakingServer, arguments: list[str], said: str
) -> None:
    ran = cli(*arguments)
    assert ran.code == 2, ran
    assert said.lower() in ran.err.lower()
    assert ran.out == ""
    assert not server.requests


def test_a_plan_that_is_not_to_be_had_does_not_stop_a_submission(
    cli: Cli, server: SpeakingServer
) -> None:
    server.faults = [lambda _: problem(500, "fault", "cannot plan")]
    ran = cli("submit", "--", "true")
    assert ran.code == 0
    assert "no table of candidates: cannot plan" in ran.err
    assert len(server.jobs) == 1


def test_a_refusal_of_the_broker_names_the_field(cli: Cli, server: SpeakingServer) -> None:
    errors = [{"path": "tenant", "value": "x", "problem": "no such tenant", "remedy": "ask"}]
    server.faults = [lambda _: problem(422, "bad", "the job is refused", errors=errors)]
    ran = cli("submit", "--", "true")
    assert ran.code == 2
    assert ran.err == "tradewind: the job is refused\n  tenant: no such tenant (got x); ask\n"


def test_submit_and_wait_gives_the_jobs_end_as_exit_code(
    cli: Cli, server: SpeakingServer
) -> None:
    timer = threading.Timer(0.7, lambda: server.end_job(next(iter(server.jobs)), "failed", 3))
    timer.start()
    ran = cli("submit", "--wait", "--json", "--", "false")
    timer.join()
    assert ran.code == 1
    document = json.loads(ran.out)
    assert document["job"]["outcome"]["exit_code"] == 3
    assert "failed (exit 3)" in ran.err


def test_wait_exit_codes(cli: Cli, server: SpeakingServer) -> None:
    server.jobs[JOB] = ended(job_object())
    assert cli("wait", JOB).code == 0
    server.jobs[JOB] = ended(job_object(), "timed_out")
    ran = cli("wait", JOB)
    assert (ran.code, ran.out) == (1, f"{JOB} timed out after 4m10s\n")
    server.jobs[JOB] = job_object()
    ran = cli("wait", "--timeout", "1s", JOB)
    assert (ran.code, ran.out) == (6, "")
    assert "did not end" in ran.err
    assert cli("wait", "j00000000000000zz").code == 3


def test_jobs_by_name_when_the_name_is_one_jobs(cli: Cli, server: SpeakingServer) -> None:
    server.jobs[JOB] = ended(job_object())
    assert JOB in cli("show", "train").out
    server.jobs["j00000000000000a2"] = job_object("j00000000000000a2")
    ran = cli("cancel", "train")
    assert ran.code == 2
    assert "j00000000000000a2" in ran.err
    assert cli("cancel", "trai").code == 3


def test_cancel_goes_on_after_a_refusal(cli: Cli, server: SpeakingServer) -> None:
    other = "j00000000000000a2"
    server.jobs = {JOB: ended(job_object()), other: job_object(other)}
    ran = cli("cancel", "--why", "mistake", JOB, other)
    assert ran.code == 4
    assert ran.out == f"{other} cancelling\n"
    assert "has ended already" in ran.err


def test_the_table_of_jobs_has_the_notes_of_silent_sites_on_stderr(
    cli: Cli, server: SpeakingServer
) -> None:
    server.jobs[JOB] = job_object()
    server.answers["notes"] = ["eu-west is silent since 12:58"]
    ran = cli("jobs")
    assert "queued" in ran.out
    assert ran.err == "note: eu-west is silent since 12:58\n"
    document = json.loads(cli("jobs", "--json").out)
    assert document["jobs"][0]["id"] == JOB
    assert document["notes"] == ["eu-west is silent since 12:58"]


def test_no_line_of_a_pipe_is_cut_or_folded(cli: Cli, server: SpeakingServer) -> None:
    server.jobs[JOB] = job_object(
        name="n" * 120, reason={"code": "x", "text": "because " * 30}
    )
    ran = cli("jobs")
    assert len(ran.out.splitlines()) == 2
    assert "n" * 120 in ran.out
    assert "\x1b" not in ran.out


def test_what_others_wrote_does_not_steer_our_terminal(
    cli: Cli, server: SpeakingServer
) -> None:
    server.jobs[JOB] = job_object(name="a\x1b[2Jb\nc", reason={"text": "\x1b]0;x\x07"})
    for command in (["jobs"], ["show", JOB]):
        ran = cli(*command)
        assert "\x1b" not in ran.out and "\x07" not in ran.out


def test_logs_are_the_bytes_the_job_wrote(cli: Cli, server: SpeakingServer) -> None:
    server.jobs[JOB] = job_object()
    server.log = b"one\ntwo \xe2\x82\xac\nthree, and more than one page\n"
    ran = cli("logs", JOB)
    assert (ran.code, ran.out) == (0, server.log.decode())
    assert json.loads(cli("logs", "--json", JOB).out)["text"] == server.log.decode()


def test_logs_followed_end_with_the_jobs_end(cli: Cli, server: SpeakingServer) -> None:
    server.log_script = [
        [("waiting", {"text": "waiting for us-east"}), piece("a-1", 0, "hello\n"), None],
        [piece("a-1", 6, "again\n"), ("end", {"phase": "ended", "outcome": "failed",
                                               "exit_code": 3})],
    ]
    ran = cli("logs", "-f", "--task", "3", "--attempt", f"{JOB}-2", JOB)
    assert (ran.code, ran.out) == (1, "hello\nagain\n")
    assert ran.err == "waiting for us-east\n--- failed (exit 3)\n"
    query = server.asked("GET", f"/v1/jobs/{JOB}/logs")[0][2]
    assert (query["task"], query["attempt"]) == ("3", "2")


def test_fetch_lays_results_where_they_belong(
    cli: Cli, server: SpeakingServer, tmp_path: Path
) -> None:
    digest = hashlib.sha256(b"model").hexdigest()
    server.blobs[digest] = b"model"
    server.outputs = [
        {"path": "out/model.pt", "sha256": digest, "size_bytes": 5, "mode": 0o4755},
        {"path": "model.pt", "sha256": digest, "size_bytes": 5, "mode": 0o644, "task": 7},
    ]
    ran = cli("fetch", JOB, "here")
    assert (ran.code, ran.err) == (0, "")
    assert (tmp_path / "here/out/model.pt").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "here/task-7/model.pt").read_bytes() == b"model"
    assert cli("fetch", JOB, "here").code == 0
    (tmp_path / "here/out/model.pt").write_text("mine")
    ran = cli("fetch", JOB, "here")
    assert ran.code == 2
    assert "--force" in ran.err
    assert cli("fetch", "--force", JOB, "here").code == 0
    assert (tmp_path / "here/out/model.pt").read_bytes() == b"model"
    assert [p.name for p in (tmp_path / "here/out").iterdir()] == ["model.pt"]


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "", None, "a/../../b", "link/x"])
def test_fetch_writes_nowhere_else(
    cli: Cli, server: SpeakingServer, tmp_path: Path, path: str | None
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/link").symlink_to(tmp_path)
    server.outputs = [{"path": path, "sha256": "0" * 64}]
    ran = cli("fetch", JOB, "here")
    assert ran.code == 2
    assert not server.asked("GET", f"/v1/blobs/{'0' * 64}")


def test_who_is_not_allowed_gets_4_and_who_is_not_there_3(
    cli: Cli, server: SpeakingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("show", JOB).code == 3
    monkeypatch.setenv("TRADEWIND_TOKEN", "tw_wrong_x")
    ran = cli("jobs")
    assert ran.code == 4
    assert "TRADEWIND_TOKEN" in ran.err


def test_no_broker_offers_tradewind_up(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRADEWIND_URL")
    ran = cli("jobs")
    assert (ran.code, ran.out) == (5, "")
    assert ran.err.startswith("tradewind: no broker to talk to\n  run `tradewind up`")


def test_a_broker_that_is_away_gives_5(cli: Cli, server: SpeakingServer) -> None:
    server.faults = [lambda _: problem(503, "busy", "no quorum", headers={"Retry-After": "99"})]
    ran = cli("status")
    assert ran.code == 5
    assert "no quorum" in ran.err


def test_an_answer_of_the_wrong_shape_is_no_traceback(
    cli: Cli, server: SpeakingServer
) -> None:
    server.faults = [lambda _: web.json_response([1, 2])]
    ran = cli("status")
    assert ran.code == 5
    assert ran.err.startswith("tradewind: the answer is not a JSON object")


def test_doctor_finds_what_is_wrong(
    cli: Cli, server: SpeakingServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.answers |= {
        "whoami": {"subject": "ada"}, "status": {"leader": "b1"},
        "clusters": {"clusters": [{"name": "eu-west-1", "connected": False}]},
    }  # fmt: skip
    keys = tmp_path / "home/.local/state/tradewind/up/keys"
    keys.mkdir(parents=True, mode=0o700)
    (keys / "ca.key").write_text("x")
    ran = cli("doctor", "--json")
    levels = {each["name"]: each["level"] for each in json.loads(ran.out)["checks"]}
    assert ran.code == 1
    assert (levels["broker"], levels["token"], levels["clusters"]) == ("ok", "ok", "warn")
    assert levels["keys"] == "fail"
    (keys / "ca.key").chmod(0o600)
    assert cli("doctor").code == 0
    monkeypatch.setenv("TRADEWIND_TOKEN", "tw_wrong_x")
    ran = cli("doctor")
    assert ran.code == 1
    assert "token" in ran.out and "fail" in ran.out


def test_help_of_every_command_and_version(cli: Cli, server: SpeakingServer) -> None:
    from broker.cli.table import TABLE

    overview = cli("--help")
    for entry in TABLE:
        assert f"  {entry.name} " in overview.out
        ran = cli(entry.name, "--help")
        assert ran.code == 0
        if "COMMAND [ARGS]" not in ran.out:  # a group: its own commands take it
            assert "--json" in ran.out
    server.answers["version"] = {"version": "0.1.0", "protocol": 1}
    assert "broker 0.1.0 (protocol=1)" in cli("--version").out
