"""The agent's side of the keeper's socket: connect, start it if it is not there, ask, listen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import federation
import regional_agent
from regional_agent.act.keeper.frames import BadFrame, FrameReader, encode
from regional_agent.act.keeper.layout import socket_path

START_TIMEOUT_S = 10.0
RETRY_S = 0.05
READ_BYTES = 2**18

Body = dict[str, Any]


class KeeperGone(Exception):
    """The keeper cannot be reached, or went away before it answered: what it did is unknown."""


class KeeperRefused(Exception):
    """The keeper answered that it will not do this; carries its reason."""


class KeeperConnection:
    """One connection. Requests may overlap; changes come in if subscribed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._closed = False
        self.changes: asyncio.Queue[list[Body] | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, state: Path) -> KeeperConnection:
        """Connect to the keeper of this directory. Raises KeeperGone."""
        try:
            directory = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise KeeperGone(f"no state directory: {error}") from error
        try:
            # Through /proc, because the path of a Unix socket has room for 107 bytes only.
            path = f"/proc/self/fd/{directory}/{socket_path(state).name}"
            reader, writer = await asyncio.open_unix_connection(path)
        except OSError as error:
            raise KeeperGone(f"no keeper in {state}: {error}") from error
        finally:
            os.close(directory)
        return cls(reader, writer)

    @property
    def closed(self) -> bool:
        """True once the connection is of no use."""
        return self._closed

    async def request(self, op: str, **fields: Any) -> Any:
        """Ask, and wait for the answer. Raises KeeperGone, KeeperRefused."""
        if self._closed:
            raise KeeperGone("the connection is closed")
        self._last_id += 1
        number = self._last_id
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._writer.write(encode({"id": number, "op": op} | fields))
            await self._writer.drain()
            return await answer
        except (OSError, BadFrame) as error:
            self._closed = True
            raise KeeperGone(str(error)) from error
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """Close; requests that wait raise KeeperGone."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        frames = FrameReader()
        try:
            while data := await self._reader.read(READ_BYTES):
                for body in frames.feed(data):
                    self._take(body)
        except (OSError, BadFrame):
            pass
        finally:
            self._closed = True
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(KeeperGone("the keeper went away"))
            self.changes.put_nowait(None)

    def _take(self, body: Body) -> None:
        if "changes" in body:
            self.changes.put_nowait(body["changes"])
            return
        answer = self._waiting.get(body.get("id", 0))
        if answer is None or answer.done():
            return
        if "error" in body:
            answer.set_exception(KeeperRefused(body["error"]))
        else:
            answer.set_result(body["ok"])


class KeeperClient:
    """Requests to the keeper of a directory, which is started whenever it is not there.

    `arguments` are more words for its command line.
    """

    def __init__(self, state: Path, arguments: Sequence[str] = ()) -> None:
        self._state = state
        self._arguments = tuple(arguments)
        self._connection: KeeperConnection | None = None
        self._connecting = asyncio.Lock()

    async def request(self, op: str, **fields: Any) -> Any:
        """Ask. Every request may be repeated, so one cut off is asked once more.

        Raises KeeperGone if that fails too, KeeperRefused.
        """
        try:
            return await (await self._connected()).request(op, **fields)
        except KeeperGone:
            return await (await self._connected()).request(op, **fields)

    async def changes(self) -> AsyncIterator[list[Body]]:
        """Lists of states that changed; everything again whenever the keeper came back."""
        while True:
            try:
                connection = await self._start_and_open()
            except KeeperGone:
                await asyncio.sleep(RETRY_S)
                continue
            try:
                await connection.request("subscribe")
                while (changes := await connection.changes.get()) is not None:
                    yield changes
            except KeeperGone:
                await asyncio.sleep(RETRY_S)
            finally:
                await connection.close()

    async def close(self) -> None:
        """Close the connection; the keeper stays."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _connected(self) -> KeeperConnection:
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                self._connection = await self._start_and_open()
            return self._connection

    async def _start_and_open(self) -> KeeperConnection:
        deadline_s = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while True:
            try:
                return await KeeperConnection.open(self._state)
            except KeeperGone:
                if asyncio.get_running_loop().time() > deadline_s:
                    raise
            # Harmless if one is about to listen, or another caller starts one: it is locked.
            await start_keeper(self._state, self._arguments)
            await asyncio.sleep(RETRY_S)


async def start_keeper(state: Path, arguments: Sequence[str] = ()) -> int:
    """Start a keeper and wait until it listens; returns its starter's exit code."""
    roots = [Path(package.__path__[0]).parent for package in (regional_agent, federation)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "regional_agent.act.keeper", "--state", str(state), *arguments),
        # None of the agent's environment: it may hold secrets, and jobs are the keeper's children.
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(map(str, roots))},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    return await process.wait()
