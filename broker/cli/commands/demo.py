"""The demonstration: a federation of its own, a workload, a dead region, and what came of it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.cli.commands.up import REGIONS, start_detached, surroundings
from broker.cli.exits import Exit, Failure, note
from broker.cli.options import Json
from broker.cli.output import show_json

Option = typer.Option
SETTINGS = {"leader_ttl_s": 2.0, "heartbeat_ms": 1000, "decide_cpu_s": 0.5}
"""Quicker than a broker at work would be: nobody waits for a demonstration."""


def demo(
    as_json: Json = False,
    keep: Annotated[
        bool, Option("--keep", help="Leave the federation running and say where it is.")
    ] = False,
) -> int:
    """Run etcd, a broker and three regions here, and a mixed workload through them.

    One region is killed in the middle and comes back. Afterwards everything is stopped and
    removed.
    """
    directory = Path(tempfile.mkdtemp(prefix="tradewind-demo-"))
    kept = False
    try:
        document = asyncio.run(_tell(directory, keep=keep))
        if keep:
            # Taken over by a supervisor that outlives this command.
            start_detached(directory, REGIONS)
            kept = True
    finally:
        if not kept:
            shutil.rmtree(directory, ignore_errors=True)
    if as_json:
        show_json(document)
    else:
        from broker.cli.demo_report import show_report

        show_report(document)
    return Exit.OK if document["once"]["holds"] else Exit.FAULT


async def _tell(directory: Path, *, keep: bool) -> dict[str, Any]:
    from broker.client import ClientError
    from broker.local.demo.story import StoryFailed
    from broker.local.federation import StartFailed

    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await _federation(directory, keep=keep)
    except (StartFailed, StoryFailed, OSError) as error:
        raise Failure(Exit.FAULT, str(error)) from error
    except ClientError as error:
        raise Failure(Exit.FAULT, f"the broker: {error}") from error


async def _federation(directory: Path, *, keep: bool) -> dict[str, Any]:
    from dataclasses import replace

    from broker.local.demo.report import report
    from broker.local.demo.workload import workload
    from broker.local.federation import LocalFederation
    from broker.local.inventory import SITES
    from broker.local.layout import Home
    from federation.system import SystemClock

    clock = SystemClock()
    begun_s = clock.monotonic_s()

    def tell(line: str) -> None:
        note(f"{clock.monotonic_s() - begun_s:5.1f} s  {line}")

    given = replace(surroundings(tell), broker_settings=SETTINGS)
    starts = directory / "starts"
    planned = workload(sys.executable, str(starts))
    async with LocalFederation(Home(directory), tuple(SITES.values()), given) as federation:
        stopped = False
        try:
            await federation.start()
            up_s = clock.monotonic_s()
            tell(f"{len(SITES)} regions have joined")
            told = await _keeping(federation, planned, starts, tell)
            took = {"start": up_s - begun_s, "work": clock.monotonic_s() - up_s}
            document = report(told, planned, took)
            if keep:
                federation.let_go()
            return document | _whereabouts(federation, keep=keep)
        except BaseException:
            stopped = True
            await asyncio.shield(asyncio.to_thread(federation.stop))
            raise
        finally:
            if not keep and not stopped:
                await asyncio.to_thread(federation.stop)
                tell("everything is stopped and removed")


async def _keeping(federation: Any, planned: Any, starts: Path, tell: Any) -> Any:
    """Tell the story while the federation is kept."""
    from broker.local.demo.story import Story
    from federation.system import SystemClock

    stop = asyncio.Event()
    keeping = asyncio.create_task(federation.keep(stop))
    try:
        async with federation.client() as client:
            return await Story(federation, planned, starts, tell, SystemClock()).run(client)
    finally:
        stop.set()
        await keeping


def _whereabouts(federation: Any, *, keep: bool) -> dict[str, Any]:
    if not keep:
        return {"kept": None}
    return {"kept": {"url": federation.url, "home": str(federation.home.root)}}
