"""Running the command-line clients of a batch system, and programs that tell what a host can do:
bounded in time, whatever they do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SAID_CHARS_MAX = 400
REAPED_S = 1.0


class ClientSilent(Exception):
    """A client could not be run or did not answer in time: nothing is known about its effect."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client said. `took_s`: how long that took."""

    code: int
    out: str
    err: str
    took_s: float

    @property
    def said(self) -> str:
        """Its complaint as one line."""
        return " ".join((self.err or self.out).split())[:SAID_CHARS_MAX]


async def run_client(
    argv: Sequence[str], env: Mapping[str, str], within_s: float, text: str = ""
) -> Answer:
    """Run a client to its end; `text` is its input. Raises ClientSilent.

    A client that takes longer is killed with all it started: retries against a controller that
    is gone would go on for minutes.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
        )
    except OSError as problem:
        raise ClientSilent(f"{argv[0]} cannot be run: {problem}") from problem
    try:
        async with asyncio.timeout(within_s):
            out, err = await child.communicate(text.encode())
    except TimeoutError:
        raise ClientSilent(f"{argv[0]} did not answer within {within_s:g} s") from None
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    took_s = loop.time() - began_s
    texts = (out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
    return Answer(child.returncode or 0, *texts, took_s)


def run_probe(argv: Sequence[str], within_s: float) -> Answer:
    """Run a program that tells something about this host. Raises ClientSilent.

    Neither what it started nor a disk it hangs on is waited for: what it says goes to a file, so
    that no child of it holds the other end of a pipe open.
    """
    began_s = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as problem:
            raise ClientSilent(f"{argv[0]} cannot be run: {problem}") from problem
        try:
            code = child.wait(within_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(REAPED_S)
            text = f"not probed: {argv[0]} did not answer within {within_s:g} s"
            raise ClientSilent(text) from None
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode("utf-8", "replace"))
    return Answer(code, said[0], said[1], time.monotonic() - began_s)
