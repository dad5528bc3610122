"""One port for both listeners: a TCP front that tells them apart by the name a client asks for.

`session.<host>` goes to the sessions of agents, everything else to the API. TLS is not ended here:
the bytes are passed on as they come, so certificates, client certificates and TLS versions stay
matters of the listeners behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass

from broker.api.client_hello import HELLO_BYTES_MAX, Incomplete, NoHello, server_name
from federation.front_names import is_session_name
from federation.task_group import TaskGroup

HELLO_WAIT_S = 10.0
CONNECT_WAIT_S = 10.0
PIECE_BYTES = 1 << 16
_log = logging.getLogger(__name__)

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Behind:
    """Where the two listeners are."""

    api: Address
    sessions: Address

    def of(self, name: str) -> Address:
        """The listener for a server name."""
        return self.sessions if is_session_name(name) else self.api


async def serve_front(host: str, port: int, behind: Behind) -> asyncio.Server:
    """Listen; connections that stand live on when the server is closed. Raises OSError."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _pass_on(reader, writer, behind)
        except (OSError, TimeoutError) as error:
            _log.debug("a connection through the front ended: %s", error)
        finally:
            writer.close()

    return await asyncio.start_server(connected, host, port, reuse_address=True)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, behind: Behind
) -> None:
    async with asyncio.timeout(HELLO_WAIT_S):
        found = await _first_bytes(reader)
    if found is None:
        return
    name, data = found
    async with asyncio.timeout(CONNECT_WAIT_S):
        far_reader, far_writer = await asyncio.open_connection(*behind.of(name))
    try:
        far_writer.write(data)
        async with TaskGroup() as both:
            both.create_task(_copy(reader, far_writer))
            both.create_task(_copy(far_reader, writer))
    except* OSError as lost:
        _log.debug("a connection through the front broke off: %s", lost.exceptions[0])
    finally:
        far_writer.close()


async def _first_bytes(reader: asyncio.StreamReader) -> tuple[str, bytes] | None:
    """The name asked for and the bytes read so far; None for what is no TLS."""
    data = b""
    while True:
        piece = await reader.read(HELLO_BYTES_MAX)
        if not piece:
            return None
        data += piece
        verdict = server_name(data)
        if isinstance(verdict, NoHello):
            _log.debug("refused at the front: %s", verdict.why)
            return None
        if not isinstance(verdict, Incomplete):
            return verdict.name, data


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the one side has nothing more to say, which the other is then told."""
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()
