"""What `tradewind-agent` loads for a look at the site: a cron line runs it every few minutes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("words", [["status"], ["jobs"], ["pause"], ["kill", "j1"]])
def test_a_look_at_the_site_loads_neither_session_nor_schedulers(
    words: list[str], tmp_path: Path
) -> None:
    code = (
        "import sys\n"
        "from regional_agent.__main__ import app\n"
        f"app({[*words, '--state-dir', str(tmp_path)]!r}, standalone_mode=False)\n"
    )
    told = "import sys; sys.stderr.write('LOADED ' + ' '.join(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", f"try:\n    exec({code!r})\nfinally:\n    {told}"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    loaded = {name.split(".")[0] for name in ran.stderr.rpartition("LOADED ")[2].split()}
    assert "regional_agent" in loaded
    assert not loaded & {"grpc", "google", "aiohttp", "psutil", "rich"}


def test_an_agent_that_serves_nothing_loads_no_web_server() -> None:
    code = "import sys, regional_agent.app; print([m for m in sys.modules if m == 'aiohttp.web'])"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize(
    "words", [["jobs"], ["logs", "j1"], ["kill", "j1"], ["leave"], ["impact", "--measure", "1s"]]
)
def test_a_directory_that_no_agent_has_is_not_one_without_jobs(
    words: list[str], tmp_path: Path
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "regional_agent", *words, "--state-dir", str(tmp_path)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"tradewind-agent: no agent's state in {tmp_path}; --state-dir ")


def test_a_second_look_at_a_drain_does_not_put_its_deadline_off(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)

    def drain(*words: str) -> int:
        ran = subprocess.run(
            [sys.executable, "-m", "regional_agent", "drain", *words, "--json"]
            + ["--state-dir", str(tmp_path)],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return int(json.loads(ran.stdout)["deadline_ms"])

    assert drain("--deadline", "2h") == drain()
