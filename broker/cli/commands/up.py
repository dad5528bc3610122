"""A federation on this machine: keeping it up, and taking it down."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.cli.exits import Exit, Failure, note
from broker.cli.options import Json
from broker.cli.output import say, show_json
from broker.client.configuration import local_home

Option = typer.Option
REGIONS = "us-east,eu-west,ap-southeast"
HomeDir = Annotated[
    Path | None,
    Option("--home", help="Where it lives (TRADEWIND_HOME, ~/.local/state/tradewind/up)."),
]
STATUS_S = 2.0
DETACHED_WITHIN_S = 90.0


def home_directory(chosen: Path | None) -> Path:
    """The directory of the local federation, absolute."""
    return (chosen or local_home(os.environ, Path.home())).expanduser().absolute()


def up(
    regions: Annotated[str, Option(help="Which regions, separated by commas.")] = REGIONS,
    home: HomeDir = None,
    detach: Annotated[bool, Option("--detach", help="Leave it running and return.")] = False,
    as_json: Json = False,
) -> int:
    """Keep etcd, a broker and an agent per region running here, until Ctrl-C or `tradewind down`.

    Jobs run as processes of this machine; cards are simulated. Everything listens on loopback
    alone. What was submitted is kept for the next time.
    """
    directory = home_directory(home)
    running = _running(directory)
    if running is None and detach:
        surroundings(note)  # warnings belong on this terminal, not only in its log
        start_detached(directory, regions)
        running = _running(directory)
    if running is not None:
        return _point_at(directory, running, as_json=as_json)
    return asyncio.run(_keep(directory, regions))


def down(home: HomeDir = None, as_json: Json = False) -> int:
    """Stop the federation on this machine with all its keepers and jobs; what it stored stays."""
    from broker.local.layout import Home
    from broker.local.teardown import NotStopped, take_down

    directory = home_directory(home)
    try:
        stopped = take_down(Home(directory))
    except NotStopped as error:
        raise Failure(Exit.FAULT, str(error), "look at them with ps, and run this again") from error
    if as_json:
        show_json({
            "stopped": bool(stopped), "services": stopped.services,
            "keepers": stopped.keepers, "jobs": stopped.jobs,
        })  # fmt: skip
    elif stopped:
        ended = f"{stopped.jobs} processes of jobs" if stopped.jobs else "no job was running"
        say(f"stopped: {stopped.services} services, {stopped.keepers} keepers; {ended}")
    else:
        say(f"nothing runs in {directory}")
    return Exit.OK


def _running(directory: Path) -> dict[str, Any] | None:
    """What a federation that is up says of itself; None if none is."""
    from broker.local.layout import Home
    from broker.local.record import read_record

    home = Home(directory)
    record = read_record(home)
    supervisor = record.supervisor if record else None
    if record is None or supervisor is None or not supervisor.alive:
        return None
    return {
        "url": record.url, "home": str(directory), "ready": home.client.exists(),
        "supervisor_pid": supervisor.pid,
        "processes": {
            name: {"pid": process.pid, "alive": process.alive}
            for name, process in record.processes.items()
        },
    }  # fmt: skip


def _point_at(directory: Path, running: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        show_json(running)
        return Exit.OK
    state = "up" if running["ready"] else "starting"
    say(f"{state} at {running['url']}, kept by process {running['supervisor_pid']}")
    say(f"  lives in {directory}")
    for line in _advice(directory):
        say(line)
    return Exit.OK


def _advice(directory: Path) -> list[str]:
    prefix = ""
    if directory != home_directory(None):
        prefix = f"TRADEWIND_HOME={directory} "
    return [
        "Try, in another terminal:",
        f"  {prefix}tradewind submit -- python3 -c 'print(42)'",
        f"  {prefix}tradewind clusters",
        f"  {prefix}tradewind down",
    ]


def start_detached(directory: Path, regions: str) -> None:
    """Start a supervisor of its own session and wait until the federation is up."""
    from broker.local.keeping import environment, module, tail
    from broker.local.layout import Home

    home = Home(directory)
    # `parents` would make the home itself with the usual mode; it will hold keys
    directory.parent.mkdir(parents=True, exist_ok=True)
    for private in (directory, home.logs):
        private.mkdir(exist_ok=True, mode=0o700)
    log = home.log("up")
    argv = module("broker", "up", "--home", str(directory), "--regions", regions)
    with log.open("wb") as out:
        os.fchmod(out.fileno(), 0o600)
        child = subprocess.Popen(
            argv, env=environment(directory, os.environ), stdin=subprocess.DEVNULL, stdout=out,
            stderr=out, cwd="/", start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + DETACHED_WITHIN_S
    while not ((running := _running(directory)) and running["ready"]):
        if child.poll() is not None or time.monotonic() > deadline:
            child.terminate()
            raise Failure(Exit.FAULT, f"it did not come up:\n{tail(log)}", f"the log is {log}")
        time.sleep(0.1)


async def _keep(directory: Path, regions: str) -> int:
    from broker.local.federation import AlreadyUp, LocalFederation, StartFailed
    from broker.local.inventory import UnknownRegion, sites
    from broker.local.layout import Home
    from broker.local.ports import PortTaken

    names = tuple(name.strip() for name in regions.split(",") if name.strip())
    try:
        chosen = sites(names)
    except UnknownRegion as error:
        raise Failure(Exit.BAD_INPUT, str(error)) from error
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    given = surroundings(note)
    try:
        async with LocalFederation(Home(directory), chosen, given) as federation:
            try:
                if await _until(stop, federation.start()):
                    say(f"up at {federation.url}; Ctrl-C stops it")
                    for line in _advice(directory):
                        say(line)
                    await _show_status(federation, stop)
            finally:
                note("stopping")
                await asyncio.to_thread(federation.stop)
    except AlreadyUp as error:
        raise Failure(Exit.FAULT, str(error), "wait a moment, or run: tradewind down") from error
    except (StartFailed, PortTaken, OSError) as error:
        raise Failure(Exit.FAULT, str(error)) from error
    return Exit.OK


def surroundings(tell: Any) -> Any:
    """What a local federation is given of this machine. Raises Failure where there is no etcd."""
    from broker.local.etcd_binary import NoEtcd, find_etcd
    from broker.local.federation import Surroundings
    from federation.system import SystemClock, SystemIds

    try:
        etcd = find_etcd(os.get_exec_path())
    except NoEtcd as error:
        raise Failure(Exit.BAD_INPUT, str(error)) from error
    if etcd.warning:
        note(f"warning: {etcd.warning}")
    return Surroundings(etcd, dict(os.environ), SystemClock(), SystemIds(), tell)


async def _until(stop: asyncio.Event, work: Any) -> bool:
    """Do `work` unless told to stop; whether it was done."""
    task, told = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait([task, told], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if task.done():
        await task
        return True
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return False


async def _show_status(federation: Any, stop: asyncio.Event) -> None:
    """Keep it, with one line of what goes on: on a terminal over itself, else on change."""
    keeping = asyncio.create_task(federation.keep(stop))
    try:
        async with federation.client() as client:
            last = ""
            while not stop.is_set():
                line = await _status_line(client)
                if sys.stderr.isatty():
                    sys.stderr.write(f"\r\x1b[K{line}")
                    sys.stderr.flush()
                elif line != last:
                    note(line)
                last = line
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STATUS_S):
                        await stop.wait()
    finally:
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        stop.set()
        await keeping


async def _status_line(client: Any) -> str:
    from broker.client import ClientError
    from broker.local.status_line import status_line

    try:
        return status_line(await client.status())
    except ClientError as error:
        return f"the broker does not answer: {error}"
