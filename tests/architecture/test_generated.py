"""What machines write is what is committed: layers, generated code, the lock file."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "lock.txt"
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)")


def test_layers_hold() -> None:
    """The import contracts, in a process of their own: the linter imports what it checks."""
    if find_spec("importlinter") is None:
        pytest.skip("import-linter is not installed (extra dev)")
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    answer = _run("-c", program, "--no-cache")
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_generated_protobuf_is_current() -> None:
    if find_spec("grpc_tools") is None:
        pytest.skip("grpcio-tools is not installed (extra dev)")
    answer = _run("proto/generate.py", "--check")
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_lock_names_no_host() -> None:
    """Where packages come from is a matter of the machine that installs them."""
    text = LOCK.read_text(encoding="utf-8")
    assert not re.search(r"https?:|--(extra-)?index-url|--trusted-host|--find-links|@ ", text)


def test_lock_pins_everything_with_hashes() -> None:
    blocks = re.split(r"\n(?=[A-Za-z0-9])", LOCK.read_text(encoding="utf-8").strip())
    pinned = [block for block in blocks if not block.startswith("#")]
    loose = [block.splitlines()[0] for block in pinned if not REQUIREMENT.match(block)]
    bare = [block.splitlines()[0] for block in pinned if "--hash=sha256:" not in block]
    assert pinned and not loose and not bare, (loose, bare)


def test_lock_holds_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        asked += extra
    names = {_canonical(re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0]) for text in asked}
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    held = {_canonical(match[1]) for line in lines if (match := REQUIREMENT.match(line))}
    assert not names - held, "run: make lock"


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
