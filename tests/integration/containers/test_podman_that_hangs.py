"""A podman that does not answer costs an agent its images, not its start."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from federation.system import SystemClock
from regional_agent.act.images import ImageWishes, find_images
from regional_agent.act.isolation import Wanted
from regional_agent.clients import run_probe

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
HANGS = "#!/bin/sh\nsleep 97.5 &\nsleep 97.5\n"
LEAVES_ONE = "#!/bin/sh\nsleep 5 &\necho overlay\n"
"""As rootless podman does, whose pause process holds its namespaces, and would hold a pipe."""


def program(directory: Path, text: str) -> str:
    path = directory / "podman"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_one_that_hangs_is_reported_as_not_probed_and_ended_with_what_it_started(
    tmp_path: Path,
) -> None:
    wishes = ImageWishes((program(tmp_path, HANGS),), probe_s=0.5)
    began_s = time.monotonic()
    found = find_images(wishes, Wanted(), tmp_path / "state", SystemClock())
    assert time.monotonic() - began_s < 30  # not the 97.5 of what hangs
    assert isinstance(found, str)
    assert found.startswith("podman: not probed: ") and found.endswith("within 0.5 s")
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not [line for line in lines if b"97.5" in line]


def test_what_it_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    answer = run_probe([program(tmp_path, LEAVES_ONE)], 4)
    assert (answer.code, answer.out) == (0, "overlay\n") and answer.took_s < 4
