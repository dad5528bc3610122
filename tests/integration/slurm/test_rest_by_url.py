"""slurmrestd behind a URL: a server of this test, for JWT is no part of Debian's Slurm."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from regional_agent.slurm.rest import RestSilent, SlurmRest


def test_by_a_url_the_token_is_read_anew_and_the_newest_known_form_is_spoken(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    asked: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.path, request.headers.get("X-SLURM-USER-TOKEN", "")))
        if "v0.0.41" not in request.path:
            return web.Response(status=404, text="Unable to find requested URL")
        if request.path.endswith("submit"):
            body = {"errors": [{"error": "Invalid license specification", "error_number": 2048}]}
            return web.json_response(body, status=500)
        return web.json_response({"jobs": []})

    async def scenario() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        rest = SlurmRest(f"http://127.0.0.1:{port}", str(token))
        try:
            assert await rest.version() == "v0.0.41"
            token.write_text("second\n")
            assert await rest.get("jobs") == {"jobs": []}
            assert asked[-1] == ("/slurm/v0.0.41/jobs", "second")
            refused = await rest.submit({"script": "x"})
            assert (refused.status, refused.said) == (500, "Invalid license specification")
        finally:
            await rest.close()
            await runner.cleanup()
        gone = SlurmRest(f"http://127.0.0.1:{port}", str(token), 1.0)
        with pytest.raises(RestSilent):
            await gone.get("jobs")
        await gone.close()

    asyncio.run(scenario())
    assert asked[0] == ("/slurm/v0.0.42/ping", "first")
