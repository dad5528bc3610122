"""The agent's side: an HTTPS server for the pods of its attempts, and for nobody else.

A pod has the token of its attempt, which opens that attempt's directory: to read its scripts and
working directory, to take claims, and to add marks, logs and outputs. It reads no other attempt,
no key and no journal, and overwrites nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
import ssl
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from federation.certificates import Credential
from federation.environment import Clock
from federation.issuing import CA_LIFE_MS, issue_server, make_ca
from federation.private_files import make_private_directory, read_private, write_private
from federation.tls import server_context
from regional_agent.act import unpack
from regional_agent.act.carry import files
from regional_agent.act.keeper.layout import STREAM_FORMAT, AttemptDir, is_uid
from regional_agent.kubernetes.site import Carry

PIECE_BYTES = 2**20
"""Of a log, at most, in one request."""
CANCELLED = "cancelled"
WORK_TAR = "work.tar"
MARK_BYTES_MAX = 4096
Answer = Callable[[web.Request, AttemptDir], Awaitable[web.StreamResponse]]


class CarryServer:
    """Serves attempts below `state`. Its key and certificate are made once and kept, so that pods
    go on after the agent was started anew."""

    def __init__(self, state: Path, carry: Carry, clock: Clock) -> None:
        self._carry = carry
        self._state = state
        self._clock = clock
        self._key = b""
        self.ca_pem = ""
        self._runner: web.AppRunner | None = None
        self._packing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self) -> None:
        """Listen; again: nothing. Raises OSError."""
        if self._runner is not None:
            return
        context = await asyncio.to_thread(self._prepare)
        app = web.Application(client_max_size=2 * PIECE_BYTES)
        for verb, path, answer in (
            ("GET", "scripts", self._scripts),
            ("GET", "work", self._work),
            ("POST", "claims/{name}", self._claim),
            ("PUT", "marks/{name}", self._mark),
            ("GET", "members", self._members),
            ("PUT", "logs/{name}", self._log),
            ("PUT", "outputs", self._outputs),
        ):
            app.router.add_route(verb, "/v1/attempts/{uid}/" + path, self._allowed(answer))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        host, _, port = self._carry.listen.rpartition(":")
        try:
            await web.TCPSite(
                runner, host.strip("[]") or "0.0.0.0", int(port), ssl_context=context  # noqa: S104
            ).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner

    async def close(self) -> None:
        """Stop; pods ask again until it is back."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def token(self, uid: str) -> str:
        """What opens an attempt's directory; the same for ever."""
        return hmac.new(self._key, uid.encode(), hashlib.sha256).hexdigest()

    def _prepare(self) -> ssl.SSLContext:
        place = self._state / "carry"
        make_private_directory(place)
        try:
            self._key = read_private(place / "key")
            certificate, key = (read_private(place / name) for name in ("ca.crt", "ca.key"))
            ca = Credential(certificate, key)
        except FileNotFoundError:
            self._key = secrets.token_bytes(32)
            ca = make_ca("carry", now_ms=self._clock.now_ms())
            write_private(place / "ca.crt", ca.certificate_pem)
            write_private(place / "ca.key", ca.key_pem)
            write_private(place / "key", self._key)
        self.ca_pem = ca.certificate_pem.decode("ascii")
        name = urlsplit(self._carry.url).hostname or ""
        own = issue_server(ca, [name], now_ms=self._clock.now_ms(), life_ms=CA_LIFE_MS)
        write_private(place / "server.pem", own.certificate_pem + own.key_pem)
        return server_context(place / "server.pem")

    def _allowed(self, answer: Answer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Only with the attempt's own token; whether there is such an attempt is not told to
        others."""

        async def handle(request: web.Request) -> web.StreamResponse:
            uid = request.match_info["uid"]
            shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not is_uid(uid) or not hmac.compare_digest(
                shown.encode(), self.token(uid).encode()
            ):
                raise web.HTTPForbidden(text="not the token of this attempt")
            place = AttemptDir(self._state, uid)
            if not place.order.exists():
                raise web.HTTPGone(text=f"the agent has no attempt {uid}")
            try:
                return await answer(request, place)
            except ValueError as problem:
                raise web.HTTPBadRequest(text=str(problem)) from problem
            except OSError as problem:  # its disk may have room again
                raise web.HTTPServiceUnavailable(text=str(problem)) from problem

        return handle

    # In -----------------------------------------------------------------------------------------

    async def _scripts(self, request: web.Request, place: AttemptDir) -> web.StreamResponse:
        packed = await asyncio.to_thread(files.scripts, place.root)
        return web.Response(body=packed, content_type="application/x-tar")

    async def _work(self, request: web.Request, place: AttemptDir) -> web.StreamResponse:
        """As staging laid it: packed once, before anything came back into it."""
        packed = place.root / WORK_TAR
        async with self._packing[place.uid]:
            if not packed.exists():
                fresh = packed.with_suffix(".new")
                await asyncio.to_thread(
                    files.pack, place.work, files.everything(place.work), fresh
                )
                fresh.rename(packed)
        self._packing.pop(place.uid, None)
        return web.FileResponse(packed)

    async def _claim(self, request: web.Request, place: AttemptDir) -> web.StreamResponse:
        name = _named(request, files.CLAIM)
        asked = await request.json()
        part, local = int(asked["part"]), str(asked["local"])
        found = await asyncio.to_thread(
            files.claim, place.root / "claims", name, part, local
        )
        if not found.granted:
            with (place.root / "duplicates").open("a") as file:
                file.write(f"{name} {local} duplicate, unrun\n")
        grace = None
        with contextlib.suppress(FileNotFoundError):
            grace = (place.root / CANCELLED).read_text()
        return web.json_response({"lay": found.lay, CANCELLED: grace})

    async def _members(self, request: web.Request, place: AttemptDir) -> web.StreamResponse:
        """What the others of a gang said: all of it for the first, else what concerns all."""
        first = request.query.get("first") == "1"
        found = {
            "marks": _read(place.root / "marks", lambda n: first or files.TO_ALL.fullmatch(n)),
            "claims": _read(place.root / "claims", lambda n: first),
        }
        return web.json_response(found)

    # Out ----------------------------------------------------------------------------------------

    async def _mark(self, request: web.Request, place: AttemptDir) -> web.StreamResponse:
        name = _named(request, files.MARK)
        text = await request.text()
        if len(text) > MARK_BYTES_MAX:
            raise web.HTTPRequestEntityTooLarge(MARK_BYTES_MAX, len(text))
        await asyncio.to_thread(files.put_once, place.root / "marks" / name, text)
        return web.Response(status=204)

    async def _log(self, request: web.Request, place: AttemptDir) -> web.StreamResponse:
        """A piece at an offset; answered by where the next begins."""
        name = _named(request, STREAM_FORMAT)
        offset, data = int(request.query["offset"]), await request.read()
        size = await asyncio.to_thread(files.append, place.logs / name, offset, data)
        return web.json_response({"bytes": size})

    async def _outputs(self, request: web.Request, place: AttemptDir) -> web.StreamResponse:
        with tempfile.NamedTemporaryFile(dir=place.root, prefix=".outputs.") as packed:
            async for chunk in request.content.iter_chunked(PIECE_BYTES):
                await asyncio.to_thread(packed.write, chunk)
            packed.flush()
            await asyncio.to_thread(unpack.unpack, Path(packed.name), place.work)
        return web.Response(status=204)


def _named(request: web.Request, form: re.Pattern[str]) -> str:
    name = request.match_info["name"]
    if not form.fullmatch(name):
        raise web.HTTPBadRequest(text=f"not a name here: {name!r}")
    return name


def _read(directory: Path, wanted: Callable[[str], object]) -> dict[str, str]:
    found = {}
    for path in directory.iterdir():
        if not path.name.startswith(".") and wanted(path.name):
            with contextlib.suppress(FileNotFoundError):
                found[path.name] = path.read_text()
    return found
