"""Starts the keeper of a state directory and leaves it running on its own.

Exit codes: 0 once it listens (or, with --foreground, once it has ended), 75 if another keeper
holds the directory.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from regional_agent.act.keeper.clock import KeeperClock
from regional_agent.act.keeper.crash import CrashPlan
from regional_agent.act.keeper.layout import lock_path
from regional_agent.act.keeper.limits import raise_file_limit
from regional_agent.act.keeper.loop import Keeper

IN_USE_CODE = 75
IDLE_EXIT_S = 600.0


def main() -> int:
    """Parse, lock, detach, run."""
    args = _arguments()
    state: Path = args.state.resolve()
    os.umask(0o077)
    state.mkdir(parents=True, exist_ok=True)
    lock = os.open(lock_path(state), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another keeper holds this directory", file=sys.stderr)  # noqa: T201
        return IN_USE_CODE
    ready = None if args.foreground else _detach(state)
    with contextlib.suppress(OSError):
        # For people to look at; a disk that is full must not keep us from our jobs.
        os.pwrite(lock, f"{os.getpid():<10}\n".encode(), 0)
    raise_file_limit()
    keeper = Keeper(state, KeeperClock(), CrashPlan(args.crash_at), args.idle_exit_s)
    keeper.open()
    # What is alive now lives for ever; unfrozen, the collector would copy it into every child.
    gc.freeze()
    if ready is not None:
        os.write(ready, b"r")
        os.close(ready)
    keeper.run()
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="keeper", description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--foreground", action="store_true")
    parser.add_argument("--idle-exit-s", type=float, default=IDLE_EXIT_S)
    parser.add_argument("--crash-at", default="", help="die at this point (for tests)")
    return parser.parse_args()


def _detach(state: Path) -> int:
    """Go on in a child that belongs to nobody; the parent leaves when it is told all is well."""
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        told = os.read(read, 1)
        os._exit(0 if told else 1)
    os.close(read)
    os.setsid()
    os.chdir(state)
    log = os.open(state / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    for fd, number in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, number)
    return write


def _run() -> NoReturn:
    # Leaves without unwinding interpreter state that children may share.
    try:
        code = main()
    except Exception:  # noqa: BLE001  # the edge of the process: say why in its log
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _run()
