"""The process that brings the output of jobs to their files while they run; one per user.

Started by tradewind-sbatch and tradewind-qsub; ends by itself when no job is left.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path

from broker.cli.shims.spool import Spool, bring_all
from broker.client import ClientError, connect, find_connection

_EVERY_S = 1.0
_UNREACHABLE_S = 10.0
_GIVE_UP_S = 1_800.0


def start(spool: Spool) -> None:
    """Start a follower unless one runs; it outlives us."""
    with (spool.directory / "follower.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
    subprocess.Popen(
        [sys.executable, "-m", "broker.cli.shims.follower"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, cwd="/",
    )  # fmt: skip


def main() -> int:
    """Follow until no job is left; 0 also when another follower is at it."""
    connection = find_connection(os.environ, Path.home())
    spool = Spool.of(connection.url, os.environ, Path.home())
    # A job put in while the last one was being forgotten is seen once the lock is free again.
    while spool.jobs():
        with (spool.directory / "follower.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0
            asyncio.run(_follow(spool))
    return 0


async def _follow(spool: Spool) -> None:
    loop = asyncio.get_running_loop()
    last_reached = loop.time()
    while spool.jobs() and loop.time() - last_reached < _GIVE_UP_S:
        pause_s = _EVERY_S
        try:
            async with connect(find_connection(os.environ, Path.home())) as client:
                await client.version()
                last_reached = loop.time()
                while left := await bring_all(client, spool):
                    # Many jobs are looked at less often: one request a job and second is enough.
                    await asyncio.sleep(max(_EVERY_S, left / 20))
        except ClientError:
            pause_s = _UNREACHABLE_S
        await asyncio.sleep(pause_s)


if __name__ == "__main__":
    sys.exit(main())
