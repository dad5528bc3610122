"""`tradewind import`, and files of other systems handed to `submit`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.client.speaking_server import SpeakingServer, ended, job_object

SCRIPT = "#!/bin/bash\n#SBATCH -J demo -n 2 --time=30\n#SBATCH --frob\necho $SLURM_JOB_ID\n"


@pytest.fixture(autouse=True)
def project(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own to submit from, beside the home directory."""
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


def test_import_needs_no_broker(cli: Cli, server: SpeakingServer) -> None:
    ran = cli("import", write("job.sbatch", SCRIPT))
    assert ran.code == 0 and not server.requests
    assert "sbatch" in ran.out and "max_runtime: 30m" in ran.out
    assert any("--frob" in line and "warning" in line for line in ran.out.splitlines())


def test_import_as_json(cli: Cli) -> None:
    document = json.loads(cli("import", write("job.sbatch", SCRIPT), "--json").out)
    assert document["kind"] == "sbatch" and document["only"] is None
    assert document["job"]["max_runtime"] == "30m" and document["errors"] == []
    assert {
        "line": 3,
        "level": "warning",
        "what": "--frob",
        "text": "unknown option: left out",
    } in (document["notes"])


def test_import_ends_with_2_when_there_is_no_job(cli: Cli) -> None:
    ran = cli("import", write("bad.sbatch", "#!/bin/sh\n#SBATCH --mem=1 --mem-per-cpu=1\n"))
    assert ran.code == 2 and "contradicts" in ran.out
    assert cli("import", "not-there").code == 2
    Path("binary").write_bytes(b"\xff\xfe\x00")
    assert cli("import", "binary").code == 2


def test_submit_takes_a_script(cli: Cli, server: SpeakingServer) -> None:
    Path("train.py").write_text("x")
    ran = cli("submit", "-q", write("job.sbatch", SCRIPT), "--label", "team=a")
    assert ran.code == 0, ran.err
    assert "warning: line 3: --frob: unknown option" in ran.err
    (job,) = server.jobs.values()
    spec = job["spec"]
    assert spec["name"] == "demo" and spec["labels"] == {"team": "a"} and "workdir" in spec
    assert SCRIPT in spec["run"] and spec["resources"]["cpus"] == 2


def test_submit_refuses_a_contradiction_with_its_line(cli: Cli, server: SpeakingServer) -> None:
    ran = cli(
        "submit", write("bad.sbatch", "#!/bin/sh\n#SBATCH --mem=1\n#SBATCH --mem-per-cpu=1\n")
    )
    assert ran.code == 2 and "line 3" in ran.err and not server.jobs


def test_what_a_script_says_is_not_said_beside_it(cli: Cli, server: SpeakingServer) -> None:
    ran = cli("submit", write("job.sbatch", SCRIPT), "--array", "0-3")
    assert ran.code == 2 and "tradewind-sbatch" in ran.err and not server.jobs


def test_a_script_that_needs_slurm_goes_to_slurm_sites(
    cli: Cli, server: SpeakingServer
) -> None:
    server.answers["clusters"] = {"clusters": [
        {"name": "alpha", "scheduler": "process"}, {"name": "beta", "scheduler": "slurm"},
        {"name": "gamma", "scheduler": "slurm"},
    ]}  # fmt: skip
    name = write("mpi.sbatch", "#!/bin/sh\n#SBATCH -n 4\nsrun --mpi=pmix ./a\n")
    assert cli("submit", "-q", name).code == 0
    (job,) = server.jobs.values()
    assert job["spec"]["placement"]["clusters"] == ["beta", "gamma"]
    refused = cli("submit", "-q", name, "--cluster", "alpha")
    assert refused.code == 2 and "alpha is none" in refused.err
    server.answers["clusters"] = {"clusters": [{"name": "alpha", "scheduler": "process"}]}
    assert "the federation has none" in cli("submit", "-q", name).err
    assert len(server.jobs) == 1


def test_jobs_waited_for_are_found_by_number(cli: Cli, server: SpeakingServer) -> None:
    waiting = job_object("j00000000000000a1", labels={"integer-id": "11111111"})
    done = ended(job_object("j00000000000000a2", labels={"integer-id": "22222222"}))
    failed = ended(
        job_object("j00000000000000a3", labels={"integer-id": "33333333"}), "failed", 1
    )
    server.jobs = {job["id"]: job for job in (waiting, done, failed)}

    def submit(dependency: str) -> object:
        name = write("dep.sbatch", f"#!/bin/sh\n#SBATCH -d {dependency}\ntrue\n")
        ran = cli("submit", "-q", name)
        job = server.jobs.get(ran.out.strip())
        return job["spec"].get("depends_on", []) if job else ran.err

    # The small server knows no filter by label: give it the answer it would give.
    server.answers["jobs"] = {"jobs": [waiting], "next_cursor": None, "notes": []}
    assert submit("afterok:11111111") == [{"job": "j00000000000000a1"}]
    server.answers["jobs"] = {"jobs": [done], "next_cursor": None, "notes": []}
    assert submit("afterok:22222222") == []
    server.answers["jobs"] = {"jobs": [failed], "next_cursor": None, "notes": []}
    assert "would never start" in str(submit("afterok:33333333"))
    server.answers["jobs"] = {"jobs": [], "next_cursor": None, "notes": []}
    assert "no job 44444444" in str(submit("afterany:44444444"))


def test_a_manifest_and_a_task_are_recognised(cli: Cli, server: SpeakingServer) -> None:
    manifest = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: k}\nspec:\n  template:\n    spec:\n"
        "      containers: [{name: a, image: busybox, command: [echo, hi]}]\n"
    )
    assert cli("submit", "-q", write("job.yaml", manifest)).code == 0
    Path("conf").write_text("c")
    task = "setup: true\nrun: cat x\nfile_mounts: {~/x: ./conf}\nworkdir: .\n"
    assert cli("submit", "-q", write("task.yaml", task)).code == 0
    first, second = (job["spec"] for job in server.jobs.values())
    assert first["command"] == ["echo", "hi"] and first["image"] == "docker://busybox"
    assert second["name"] == "task" and second["files"][0]["path"] == "x"


def test_a_home_directory_is_never_sent(
    cli: Cli, server: SpeakingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    (home / "job.sbatch").write_text(SCRIPT)
    monkeypatch.chdir(home)
    ran = cli("submit", "-q", "job.sbatch")
    (job,) = server.jobs.values()
    assert ran.code == 0 and "workdir" not in job["spec"] and "too much to send" in ran.err
