"""slurmrestd: how it is asked, over a socket of its own or a URL with a token.

The newest form of its answers that both sides know is used; which one that is, is found out by
asking. v0.0.38 was tried on 22.05; v0.0.39 to v0.0.42 follow its documentation:
https://slurm.schedmd.com/rest_api.html
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

VERSIONS = ("v0.0.42", "v0.0.41", "v0.0.40", "v0.0.39", "v0.0.38")
SOCKET = "unix:"


class RestSilent(Exception):
    """It did not answer, or not as it should: nothing is known about an effect."""


@dataclass(frozen=True, slots=True)
class RestAnswer:
    """`said`: what it calls wrong, empty for nothing."""

    status: int
    body: Mapping[str, Any]
    said: str


class SlurmRest:
    """Asks one slurmrestd. Every method may raise RestSilent."""

    def __init__(self, address: str, token_file: str = "", within_s: float = 30.0) -> None:
        """`address`: `unix:PATH` (who asks is known by the socket) or a URL, with the file in which
        a token stands, read anew for every request."""
        self._socket = address.removeprefix(SOCKET) if address.startswith(SOCKET) else ""
        self._url = "http://slurm" if self._socket else address.rstrip("/")
        self._token_file, self._within_s = token_file, within_s
        self._version = ""
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Let go of the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def version(self) -> str:
        """The form of answers that is used."""
        if not self._version:
            for version in VERSIONS:
                found = await self._ask("GET", f"/slurm/{version}/ping")
                if found.status == 200:
                    self._version = version
                    break
            else:
                known = f"{VERSIONS[-1]} to {VERSIONS[0]}"
                raise RestSilent(f"slurmrestd answers {found.status}, speaks none of {known}")
        return self._version

    async def get(self, what: str) -> Mapping[str, Any]:
        """A whole answer."""
        found = await self._ask("GET", f"/slurm/{await self.version()}/{what}")
        if found.status != 200:
            raise RestSilent(f"slurmrestd, {what}: {found.status} {found.said}")
        return found.body

    async def submit(self, body: Mapping[str, Any]) -> RestAnswer:
        """Hand a job over; the answer says whether it was taken."""
        return await self._ask("POST", f"/slurm/{await self.version()}/job/submit", body)

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> RestAnswer:
        if self._session is None:
            connector = aiohttp.UnixConnector(path=self._socket) if self._socket else None
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout(total=self._within_s)
            )
        try:
            headers = await asyncio.to_thread(self._headers)
            async with self._session.request(
                method, self._url + path, json=body, headers=headers
            ) as response:
                raw, status = await response.read(), response.status
                found = json.loads(raw) if status == 200 else _fault(raw)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
            raise RestSilent(f"slurmrestd: {problem or type(problem).__name__}") from problem
        if not isinstance(found, dict):
            raise RestSilent(f"slurmrestd: {path} is answered by no object")
        return RestAnswer(status, found, _wrong(found))

    def _headers(self) -> dict[str, str]:
        if not self._token_file:
            return {}
        return {"X-SLURM-USER-TOKEN": Path(self._token_file).read_text().strip()}


def _fault(raw: bytes) -> object:
    """What comes with a status that is no success: an answer, or plain text (no such form)."""
    try:
        return json.loads(raw)
    except ValueError:
        return {"errors": [raw[:200].decode(errors="replace").strip()]}


def _wrong(body: Mapping[str, Any]) -> str:
    errors = body.get("errors") or ()
    words = [
        str(each.get("description") or each.get("error") or each)
        if isinstance(each, dict) else str(each)
        for each in errors
    ]  # fmt: skip
    more = [str(e["error"]) for e in errors if isinstance(e, dict) and e.get("error")]
    return "; ".join(dict.fromkeys([*words, *more]))
