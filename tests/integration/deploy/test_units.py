"""The systemd units are ones systemd takes, and start what there is."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*/*.service"))
PLACES = ("/opt/tradewind/bin", "%h/.local/share/tradewind/bin")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@pytest.mark.parametrize("kind", ["system", "user"])
def test_systemd_finds_no_fault(tmp_path: Path, kind: str) -> None:
    programs = Path(sys.executable).parent
    units = [unit for unit in UNITS if unit.parent.name == kind]
    assert len(units) == 3
    for unit in units:
        text = unit.read_text()
        for place in PLACES:  # where this machine has the programs
            text = text.replace(place, str(programs))
        if shutil.which("etcd") is None:
            text = text.replace("/usr/bin/etcd", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", f"--{kind}", "verify", *sorted(map(str, tmp_path.iterdir()))],
        capture_output=True, text=True, timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
    )  # fmt: skip
    ours = [line for line in done.stderr.splitlines() if "tradewind-" in line]
    assert done.returncode == 0 and not ours, done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit.parent.name}-{unit.stem}")
def test_a_unit_starts_a_command_there_is(unit: Path) -> None:
    command = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", unit.read_text(), re.MULTILINE)
    assert command is not None
    words = command[1].replace("\\\n", " ").split()
    if words[0].endswith("/etcd"):
        if shutil.which("etcd") is None:
            return
        told = subprocess.run(["etcd", "--help"], capture_output=True, text=True)
        for word in words[1:]:
            if re.search(rf"{word.split('=')[0]}\b", told.stdout + told.stderr):
                continue
            # One that its help leaves out, it still has to take.
            assert subprocess.run(["etcd", word, "--version"], capture_output=True).returncode == 0
        return
    program = Path(sys.executable).parent / Path(words[0]).name
    verbs = [word for word in words[1:] if not word.startswith(("-", "/", "%"))]
    done = subprocess.run([program, *verbs, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for option in [word for word in words if word.startswith("--")]:
        assert option in done.stdout


@pytest.mark.parametrize("kind", ["system", "user"])
def test_an_update_of_the_agent_ends_no_job(kind: str) -> None:
    lines = (DEPLOY / "systemd" / kind / "tradewind-agent.service").read_text().splitlines()
    assert "KillMode=process" in lines and "Delegate=yes" in lines
