"""The agent's own door for the people of its site: one Unix socket, one JSON line each way.

Only the user the agent runs as can open it (0600, and the kernel names the peer). A request is
`{"op": ..., ...}`, the answer `{"ok": ...}` or `{"error": text}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regional_agent.act.keeper.server import same_user

FILE = "control.sock"
REQUEST_BYTES_MAX = 64 * 1024
ANSWER_BYTES_MAX = 64 * 2**20
ANSWER_S = 20.0

Body = Mapping[str, Any]
Handler = Callable[[Body], Awaitable[Any]]


class AgentAway(Exception):
    """No agent answers at its control socket."""


class AgentRefused(Exception):
    """The agent will not do it; carries its reason."""


class ControlServer:
    """Listens and hands requests to their handlers by `op`."""

    def __init__(self, state_dir: Path, handlers: Mapping[str, Handler]) -> None:
        self._state = state_dir
        self._handlers = handlers
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Whoever starts holds the journal, so an old socket belongs to nobody."""
        (self._state / FILE).unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            with _through_proc(self._state) as path:
                self._server = await asyncio.start_unix_server(
                    self._serve, path, limit=REQUEST_BYTES_MAX
                )
        finally:
            os.umask(mask)

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            (self._state / FILE).unlink(missing_ok=True)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            peer: socket.socket = writer.get_extra_info("socket")
            if not same_user(peer):
                return
            line = await asyncio.wait_for(reader.readline(), ANSWER_S)
            writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError, TimeoutError):
            return  # a peer that says nothing sensible is answered nothing
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        request = json.loads(line)
        handler = self._handlers.get(request.get("op", ""))
        if handler is None:
            return {"error": f"this agent does not know {request.get('op')!r}"}
        try:
            return {"ok": await handler(request)}
        except (KeyError, TypeError, ValueError) as problem:
            return {"error": str(problem)}


async def ask_agent(state_dir: Path, op: str, **fields: Any) -> Any:
    """Ask the running agent of a directory. Raises AgentAway, AgentRefused."""
    try:
        with _through_proc(state_dir) as path:
            reader, writer = await asyncio.open_unix_connection(path, limit=ANSWER_BYTES_MAX)
    except OSError as problem:
        raise AgentAway(f"no agent answers in {state_dir}: {problem}") from problem
    try:
        writer.write(json.dumps({"op": op} | fields).encode() + b"\n")
        line = await asyncio.wait_for(reader.readline(), ANSWER_S)
        answer: dict[str, Any] = json.loads(line)
    except (OSError, ValueError, TimeoutError) as problem:
        raise AgentAway(f"the agent in {state_dir} does not answer") from problem
    finally:
        writer.close()
    if "error" in answer:
        raise AgentRefused(str(answer["error"]))
    return answer["ok"]


@contextlib.contextmanager
def _through_proc(state_dir: Path) -> Iterator[str]:
    """The socket's path through /proc: that of a Unix socket has room for 107 bytes only."""
    directory = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{FILE}"
    finally:
        os.close(directory)
