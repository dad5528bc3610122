"""The command line against the API itself: what one says, the other understands."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api.world import World, running

COMMANDS = (
    ["jobs"], ["status"], ["clusters"], ["clusters", "show", "east-1"], ["prices"], ["latency"],
    ["usage"], ["tenants"], ["tenants", "show", "default"], ["freeze", "status"],
    ["whoami"], ["version"], ["token", "list"],
)  # fmt: skip


async def tradewind(world: World, where: Path, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "broker", *arguments, cwd=where, stdout=-1, stderr=-1,
        env={**os.environ, "TRADEWIND_URL": world.url, "TRADEWIND_TOKEN": world.operator,
             "HOME": str(where),
             "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.timeout(120)
async def test_a_job_from_submission_to_cancel(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(1)")
    (tmp_path / "job.yaml").write_text("run: python a.py\nfiles: [a.py]\nworkdir: .\n")
    async with running(tmp_path / "broker") as world:
        code, out, err = await tradewind(world, tmp_path, "submit", "job.yaml")
        assert (code, err) == (0, "")
        job_id = out.splitlines()[-1]
        job = world.services.projection.job(job_id)
        assert job is not None and job.name == "job"
        code, out, _ = await tradewind(world, tmp_path, "show", "--json", job_id)
        shown: dict[str, Any] = json.loads(out)
        assert (code, shown["spec"]["files"][0]["path"]) == (0, "a.py")
        for arguments in (["hold"], ["release"], ["cancel", "--why", "mistake"]):
            code, out, err = await tradewind(world, tmp_path, *arguments, job_id)
            assert (code, err) == (0, ""), arguments
        code, _, err = await tradewind(
            world, tmp_path, "submit", "-q", "--tenant", "nobody", "--", "true"
        )
        assert code == 2
        assert err.count("\n") == 1


@pytest.mark.timeout(120)
async def test_every_question_is_understood(tmp_path: Path) -> None:
    async with running(tmp_path / "broker") as world:
        for arguments in COMMANDS:
            code, out, err = await tradewind(world, tmp_path, *arguments)
            assert code == 0, (arguments, err)
            assert out.strip()
            code, out, _ = await tradewind(world, tmp_path, *arguments, "--json")
            assert code == 0
            json.loads(out)
