"""Blobs over the broker's HTTPS API, under the ticket of the attempt that needs them.

Only the federation's CA is trusted; the ticket is what opens the door, and only for what the
attempt's spec names or its outputs are. A hash alone opens nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from federation.tickets import ticket_header
from federation.tls import pinned_context
from regional_agent.act.blobs import BlobUnavailable, BlobUnknown

CHUNK_BYTES = 2**18
CONNECT_S = 10.0
SILENT_S = 60.0
CONNECTIONS = 8
_ASK_AGAIN = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class BlobDoor:
    """Where blobs are: the API's URL, the CA to trust (PEM), a CONNECT proxy or empty."""

    api_url: str
    ca_pem: str
    proxy: str = ""


class HttpsBlobs:
    """`BlobSource`; `sink` gives a `BlobSink`. `door` is asked at every request, so that a
    changed CA or address needs no restart."""

    def __init__(self, door: Callable[[], BlobDoor]) -> None:
        self._door = door
        self._tickets: dict[str, list[bytes]] = {}
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    def grant(self, hashes: Iterable[str], ticket: bytes) -> None:
        """Fetch these blobs under this ticket; several attempts may need the same ones."""
        for sha256 in hashes:
            self._tickets.setdefault(sha256, []).append(ticket)

    def revoke(self, hashes: Iterable[str], ticket: bytes) -> None:
        """Undo a `grant`."""
        for sha256 in hashes:
            held = self._tickets.get(sha256, [])
            if ticket in held:
                held.remove(ticket)
            if not held:
                self._tickets.pop(sha256, None)

    async def fetch(self, sha256: str) -> AsyncIterator[bytes]:
        """See the port. Raises BlobUnknown for a blob no ticket was granted for."""
        held = self._tickets.get(sha256)
        if not held:
            raise BlobUnknown(f"no ticket names blob {sha256}")
        ticket = held[-1]
        door = self._door()
        try:
            async with self._session(door).get(
                _url(door, sha256),
                headers={"Authorization": ticket_header(ticket)},
                proxy=door.proxy or None,
                allow_redirects=False,
            ) as answer:
                await _refuse(answer, sha256)
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
            raise BlobUnavailable(_line(door, error)) from error

    def sink(self, ticket: bytes) -> TicketSink:
        """Where the outputs of this ticket's attempt go."""
        return TicketSink(self, ticket)

    async def put(self, sha256: str, file: Path, ticket: bytes) -> None:
        """Store a file. Raises BlobUnavailable, BlobUnknown when it is refused for good, OSError
        when the file cannot be read."""
        door = self._door()
        try:
            with await asyncio.to_thread(file.open, "rb") as data:
                async with self._session(door).put(
                    _url(door, sha256),
                    data=data,
                    headers={"Authorization": ticket_header(ticket)},
                    proxy=door.proxy or None,
                    allow_redirects=False,
                ) as answer:
                    await _refuse(answer, sha256)
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
            raise BlobUnavailable(_line(door, error)) from error

    async def close(self) -> None:
        """Close all connections."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    def _session(self, door: BlobDoor) -> aiohttp.ClientSession:
        session = self._sessions.get(door.ca_pem)
        if session is None:
            context = pinned_context(door.ca_pem)
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS),
                timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=SILENT_S),
                auto_decompress=False,
            )
            self._sessions[door.ca_pem] = session
        return session


class TicketSink:
    """`BlobSink` of one attempt."""

    def __init__(self, blobs: HttpsBlobs, ticket: bytes) -> None:
        self._blobs = blobs
        self._ticket = ticket

    async def put(self, sha256: str, file: Path, size_bytes: int) -> None:
        """See the port; BlobUnknown: the broker will not take it, asking again is vain."""
        await self._blobs.put(sha256, file, self._ticket)


def _url(door: BlobDoor, sha256: str) -> str:
    return f"{door.api_url.rstrip('/')}/v1/blobs/{sha256}"


async def _refuse(answer: aiohttp.ClientResponse, sha256: str) -> None:
    if 200 <= answer.status < 300:
        return
    said = " ".join((await answer.content.read(2_000)).decode("utf-8", "replace").split())
    text = f"blob {sha256[:12]}: HTTP {answer.status}: {said[:300]}"
    if answer.status >= 500 or answer.status in _ASK_AGAIN:
        raise BlobUnavailable(text)
    raise BlobUnknown(text)


def _line(door: BlobDoor, error: Exception) -> str:
    return f"{door.api_url}: {str(error) or type(error).__name__}"
