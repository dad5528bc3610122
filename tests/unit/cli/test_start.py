"""What is loaded when the command line starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.cli.dispatch import run
from broker.cli.table import TABLE, find
from tests.unit.client.speaking_server import JOB, TOKEN, job_object, serving

HEAVY = ("ortools", "grpc", "sqlalchemy", "numpy", "google", "cryptography")


def loaded_by(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    return {name.split(".")[0] for name in out.splitlines()}


def test_the_command_line_loads_nothing_heavy() -> None:
    loaded = loaded_by("import broker.cli, broker.__main__")
    assert not loaded & {*HEAVY, "aiohttp", "typer", "rich", "pydantic"}


def test_no_command_of_the_client_loads_a_solver_or_grpc() -> None:
    targets = sorted({entry.target.partition(":")[0] for entry in TABLE if not entry.extra})
    loaded = loaded_by("\n".join(f"import {target}" for target in targets))
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize(
    "command",
    ["jobs", "show", "explain", "wait", "cancel", "status", "clusters", "usage", "decide"],
)
def test_a_question_to_the_broker_loads_no_job_format(command: str) -> None:
    entry = find(command)
    assert entry is not None
    loaded = loaded_by(f"import {entry.target.partition(':')[0]}")
    assert not loaded & {*HEAVY, "aiohttp", "pydantic", "yaml", "pathspec", "rich"}


def test_a_job_file_of_our_own_loads_no_reader_of_old_scripts(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("run: echo hello\n")
    names = subprocess.run(
        [sys.executable, "-c",
         "from broker.cli.job_options import JobOptions, read_job\n"
         "read_job('job.yaml', None, JobOptions())\n"
         "import sys\nprint('\\n'.join(sys.modules))"],
        capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    ).stdout.splitlines()  # fmt: skip
    readers = {name for name in names if name.startswith("broker.compat.")}
    assert readers == {"broker.compat.kinds", "broker.compat.yaml_items"}


@pytest.mark.parametrize("words", [["plan"], ["submit", "--dry-run"]], ids=["plan", "dry run"])
def test_a_plan_shown_has_loaded_few_modules(tmp_path: Path, words: list[str]) -> None:
    """What is loaded is most of what the command costs. 409 were counted, 545 with an HTTP client
    that keeps connections and a packer of directories."""
    (tmp_path / "job.yaml").write_text("run: echo hello\n")
    code = (
        "import sys\n"
        "from broker.cli.dispatch import run\n"
        f"code = run([*{words!r}, 'job.yaml'])\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    with serving() as server:
        server.answers["plan"] = {"candidates": [{"cluster": "us-east", "pool": "cpu"}]}
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60,
            env={**os.environ, "TRADEWIND_URL": server.url, "TRADEWIND_TOKEN": TOKEN,
                 "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )  # fmt: skip
    assert ran.returncode == 0 and "us-east" in ran.stdout
    loaded = ran.stderr.splitlines()
    names = {name.split(".")[0] for name in loaded}
    assert not names & {*HEAVY, "aiohttp", "pathspec", "opentelemetry"}
    assert not {name for name in loaded if name.startswith("broker.compat.")} - {
        "broker.compat.kinds", "broker.compat.yaml_items"
    }  # fmt: skip
    assert len(loaded) <= 460


def test_the_client_needs_only_the_vocabulary() -> None:
    out = subprocess.run(
        [sys.executable, "-c", "import broker.client, sys; print('\\n'.join(sys.modules))"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    ours = {name for name in out.splitlines() if name.startswith("broker.")}
    assert all(name.startswith(("broker.client", "broker.model")) for name in ours)


def test_every_entry_of_the_table_is_there() -> None:
    from importlib import import_module

    assert len({entry.name for entry in TABLE}) == len(TABLE)
    for entry in TABLE:
        module, _, attribute = entry.target.partition(":")
        assert callable(getattr(import_module(module), attribute)), entry


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'yaml':\n"
        "            raise ModuleNotFoundError('no', name='ortools')\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from broker.cli.dispatch import run\n"
        "open('job.yaml', 'w').write('run: x')\n"
        "sys.exit(run(['plan', 'job.yaml']))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )  # fmt: skip
    assert ran.returncode == 2
    assert "pip install 'tradewind[broker]'" in ran.stderr


def test_a_reader_that_goes_away_is_no_fault() -> None:
    ran = subprocess.run(
        f"{sys.executable} -m broker --help | true; echo ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout.strip() in ("0", "141")
    assert ran.stderr == ""


def test_nothing_said_is_the_overview() -> None:
    assert run([]) == 0
    assert run(["help", "jobs"]) == 0


def test_the_manual_has_every_command_and_exit_code() -> None:
    from broker.cli.exits import Exit

    page = (Path(__file__).parents[3] / "docs/cli.md").read_text()
    for entry in TABLE:
        assert f"| `tradewind {entry.name}" in page.replace("\\|", "|"), entry.name
    for code in Exit:
        assert f"| {code.value} | " in page, code


@pytest.mark.parametrize("command", [["wait", JOB], ["logs", "-f", JOB]])
def test_ctrl_c_is_clean(command: list[str]) -> None:
    with serving() as server:
        server.jobs[JOB] = job_object()
        process = subprocess.Popen(
            [sys.executable, "-m", "broker", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "TRADEWIND_URL": server.url, "TRADEWIND_TOKEN": TOKEN,
                 "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )  # fmt: skip
        deadline = time.monotonic() + 20
        while len(server.requests) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err
