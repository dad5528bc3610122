"""An alias is a migration: 20 scripts that drive Slurm or Grid Engine run unchanged.

They call sbatch, squeue, scancel, sinfo, sacct, qsub, qstat and qdel by these names, parse what
they print, poll until jobs are gone, and read the output files.
"""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

from tests.chaos.federation import RealFederation

DRIVERS = sorted((Path(__file__).parent / "drivers").glob("[0-9]*"))
PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "qsub", "qstat", "qdel")
AT_ONCE = 3


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a user whose sbatch is ours, in a federation of two sites."""
    directory = tmp_path_factory.mktemp("drivers")
    programs = directory / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m broker.cli.shims {name} "$@"\n')
        program.chmod(0o755)
    home = directory / "home"
    home.mkdir()
    federation = RealFederation(directory / "federation")
    federation.directory.mkdir()
    try:
        federation.start("alpha", "beta", slots=32)
        yield {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(home),
            "USER": getpass.getuser(),
            "LANG": "C.UTF-8",
            "TRADEWIND_URL": federation.url,
            "TRADEWIND_TOKEN": federation.token,
            "TRADEWIND_CA": str(federation.directory / "broker" / "keys" / "ca.pem"),
        }
    finally:
        federation.stop()


def drive(script: Path, directory: Path, environment: dict[str, str]) -> str:
    """Run one driver in a directory of its own; what it said if it failed, else nothing."""
    place = directory / script.stem
    place.mkdir()
    try:
        ran = subprocess.run(
            [str(script)], cwd=place, env=environment, capture_output=True, text=True, timeout=90,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        return f"{script.name}: not within {late.timeout} s; said {late.stdout!r} {late.stderr!r}"
    if ran.returncode == 0:
        return ""
    files = {path.name: path.read_text()[:500] for path in place.iterdir() if path.is_file()}
    return f"{script.name}: exit {ran.returncode}\n{ran.stdout}{ran.stderr}\n{files}"


@pytest.mark.etcd
@pytest.mark.slow
@pytest.mark.timeout(200)
def test_twenty_drivers_run_unchanged(surroundings: dict[str, str], tmp_path: Path) -> None:
    assert len(DRIVERS) >= 20
    with ThreadPoolExecutor(AT_ONCE) as pool:
        failures = pool.map(lambda script: drive(script, tmp_path, surroundings), DRIVERS)
        bad = [said for said in failures if said]
    assert not bad, "\n".join(bad)


def test_the_commands_are_installed_under_their_names() -> None:
    root = Path(__file__).resolve().parents[2]
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    for name in PROGRAMS:
        module, _, attribute = scripts[f"tradewind-{name}"].partition(":")
        assert callable(getattr(import_module(module), attribute))
