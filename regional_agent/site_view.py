"""What the site's people see and do without any broker: through the keeper and the files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from federation.units import format_utc
from regional_agent.act.keeper.client import KeeperConnection, KeeperGone, KeeperRefused
from regional_agent.act.keeper.layout import AttemptDir, attempts_dir
from regional_agent.control_socket import AgentAway, AgentRefused, ask_agent
from regional_agent.identity import (
    IdentityError,
    has_identity,
    identity_directory,
    load_identity,
)
from regional_agent.site_state import OPEN, SiteState, read_site_state
from regional_agent.status import is_running, read_status

if TYPE_CHECKING:
    from regional_agent.settings import AgentSettings
    from regional_agent.site_scheduler import SiteScheduler

LOG_PIECE_BYTES = 256 * 1024
FOLLOW_S = 0.2
JOURNAL = "journal.db"


class SiteProblem(Exception):
    """What was asked for cannot be done here; the text is one line."""


@dataclass(frozen=True)
class KeeperSeen:
    """A keeper as it answered, or that it does not."""

    answers: bool
    pid: int
    attempts: list[dict[str, Any]]
    groups: str | int = "the keeper that runs is older"


def with_overrides(settings: AgentSettings, overrides: Mapping[str, Any]) -> AgentSettings:
    """Settings with what the command line says. Raises ValueError where that makes no sense."""
    changed = replace(settings, **overrides)
    if changed.report_sink not in ("session", "etcd"):
        raise ValueError("report_sink is session or etcd")
    if changed.report_sink == "etcd" and not changed.etcd_endpoints:
        raise ValueError("report_sink etcd needs etcd_endpoints in agent.yaml")
    return changed


def open_scheduler(state: Path) -> SiteScheduler:
    """The local scheduler, beside an agent that may run. Raises SiteProblem."""
    from regional_agent.app import Backends
    from regional_agent.settings import SettingsError, load_settings
    from regional_agent.site_scheduler import local_site

    try:
        clock, settings = Backends.system().clock, load_settings(state)
        return local_site(settings, clock, follow=False).scheduler
    except SettingsError as problem:
        raise SiteProblem(str(problem)) from problem


async def keeper_seen(state: Path) -> KeeperSeen:
    """The keeper as it is: one that does not run is not started for a look."""
    try:
        connection = await KeeperConnection.open(state)
    except KeeperGone:
        return KeeperSeen(answers=False, pid=0, attempts=[])
    try:
        hello = await connection.request("hello")
        attempts = await connection.request("status", uids=None)
        groups = hello.get("groups", KeeperSeen.groups)
        return KeeperSeen(answers=True, pid=hello["pid"], attempts=attempts, groups=groups)
    except (KeeperGone, KeeperRefused):
        return KeeperSeen(answers=False, pid=0, attempts=[])
    finally:
        await connection.close()


async def keeper_pid(state: Path) -> int:
    """The keeper's process; 0 = none."""
    return (await keeper_seen(state)).pid


# Looking ---------------------------------------------------------------------------------------


async def status(state: Path) -> dict[str, Any]:
    """Agent, session, keeper and certificate as one mapping."""
    known = read_status(state)
    keeper = await keeper_seen(state)
    live = [a for a in keeper.attempts if a["outcome"] is None]
    identity = load_identity(state) if has_identity(state) else None
    return {
        "state_dir": str(state),
        "cluster": identity.cluster if identity else "",
        "region": identity.region if identity else "",
        "certificate_expires_ms": identity.facts.not_after_ms if identity else 0,
        "agent": {"running": is_running(known), **(known or {})},
        "keeper": {"running": keeper.answers, "pid": keeper.pid, "live": len(live)},
        "site": _site(read_site_state(state), known or {}),
    }


def _site(wanted: SiteState, known: Mapping[str, Any]) -> dict[str, Any]:
    """What the site's people want now, from their file; hours that are closed, from the agent."""
    state, reason = wanted.state, wanted.text
    if state == OPEN and known.get("site_state") == "blackout" and is_running(dict(known)):
        state, reason = "blackout", known.get("site_reason") or ""
    return {"state": state, "reason": reason, "banned": sorted(wanted.bans)}


def status_text(shown: Mapping[str, Any]) -> str:
    """The same for people."""
    agent, keeper = shown["agent"], shown["keeper"]
    if not shown["cluster"]:
        return (
            f"no identity in {shown['state_dir']}; run: tradewind-agent join, or name the agent's "
            "directory with --state-dir"
        )
    lines = [
        f"cluster      {shown['cluster']} ({shown['region']})",
        f"certificate  until {format_utc(shown['certificate_expires_ms'])}",
    ]
    if not agent["running"]:
        lines.append("agent        not running")
    elif agent.get("connected"):
        lines.append(f"agent        pid {agent['pid']}, session with {agent['broker']}")
    else:
        lines.append(f"agent        pid {agent['pid']}, no session: {agent.get('reason')}")
    running = f"pid {keeper['pid']}, {keeper['live']} attempts" if keeper["running"] else "none"
    lines.append(f"keeper       {running}")
    site = shown["site"]
    if site["state"] != OPEN:
        why = f": {site['reason']}" if site["reason"] else ""
        lines.append(f"site         {site['state']}{why}")
    if site["banned"]:
        lines.append(f"banned       {', '.join(site['banned'])}")
    if agent["running"]:
        if agent.get("site_fault"):
            lines.append(f"site rules   {agent['site_fault']}; the ones before hold")
        for name, accelerator, free, total in agent.get("pools", []):
            lines.append(f"pool         {name}: {free} of {total} {accelerator} free")
        lines.append(f"events       {agent['unacknowledged']} not yet with the broker")
    return "\n".join(lines)


def refuse_elsewhere(state: Path) -> None:
    """Raises SiteProblem where no agent ever was: nothing there is not the same as no jobs."""
    if not any((has_identity(state), attempts_dir(state).exists(), (state / JOURNAL).exists())):
        raise SiteProblem(
            f"no agent's state in {state}; --state-dir or TRADEWIND_AGENT_STATE names the directory"
        )


async def jobs(state: Path) -> list[dict[str, Any]]:
    """Every attempt the keeper holds, or, without one, what the agent knows or whose order lies
    here. Who submitted, and why an attempt was stopped, only a running agent knows."""
    keeper = await keeper_seen(state)
    by_uid = {a["uid"]: a for a in keeper.attempts}
    known: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(AgentAway, AgentRefused):
        known = {row["uid"]: row for row in await ask_agent(state, "attempts")}
    if not keeper.answers and known:
        return [_as_agent_says(row) for row in known.values()]
    if not keeper.answers and attempts_dir(state).exists():
        by_uid = {entry.name: {} for entry in attempts_dir(state).iterdir() if entry.is_dir()}
    return [_with(_job(state, uid, by_uid[uid]), known.get(uid)) for uid in sorted(by_uid)]


def _with(row: dict[str, Any], known: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the keeper saw, with what the agent knows of it: to the keeper each stop is alike."""
    if known is None:
        return row
    outcome = known["outcome"] if row["outcome"] else ""
    return row | {"user": known["user"], "outcome": outcome or row["outcome"]}


async def jobs_here(state: Path) -> list[dict[str, Any]]:
    """The same for a person, who may have named another directory. Raises SiteProblem."""
    refuse_elsewhere(state)
    return await jobs(state)


def _as_agent_says(row: Mapping[str, Any]) -> dict[str, Any]:
    unknown = {"exit": None, "running": 0, "unstarted": 0}
    times = {"submitted_ms": row["accepted_ms"], "started_ms": row["started_ms"]}
    names = ("uid", "job", "tenant", "user", "phase", "outcome", "ended_ms")
    return {name: row[name] for name in names} | unknown | times


def _job(state: Path, uid: str, seen: Mapping[str, Any]) -> dict[str, Any]:
    order: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        order = json.loads(AttemptDir(state, uid).order.read_bytes())
    outcome = seen.get("outcome")
    submitted_ms, started_ms, ended_ms = seen.get("times") or (0, 0, 0)
    return {
        "uid": uid,
        "job": order.get("job", ""),
        "tenant": order.get("tenant", ""),
        "user": "",
        "phase": seen.get("phase", "unknown: no keeper runs"),
        "outcome": outcome[0] if outcome else "",
        "exit": outcome[1] if outcome else None,
        "running": _count(seen.get("running")),
        "unstarted": _count(seen.get("unstarted")),
        "submitted_ms": submitted_ms,
        "started_ms": started_ms,
        "ended_ms": ended_ms,
    }


def _count(pairs: Any) -> int:
    return sum(last - first + 1 for first, last in pairs or [])


def jobs_text(rows: list[dict[str, Any]]) -> str:
    """The same as a table."""
    if not rows:
        return "no attempts here"
    head = ("ATTEMPT", "TENANT", "USER", "PHASE", "OUTCOME", "STARTED")
    table = [head]
    for row in rows:
        outcome = row["outcome"] + (f"({row['exit']})" if row["exit"] else "")
        started = format_utc(row["started_ms"]) if row["started_ms"] else "-"
        who = (row["tenant"] or "-", row["user"] or "-")
        table.append((row["uid"], *who, row["phase"], outcome or "-", started))
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    )


# Logs and ends ---------------------------------------------------------------------------------


async def print_log(state: Path, which: tuple[str, str], out: BinaryIO, *, follow: bool) -> None:
    """Write a log to `out`; `which` is an attempt or job, and a stream or nothing."""
    refuse_elsewhere(state)
    uid = await resolve(state, which[0])
    scheduler = open_scheduler(state)
    try:
        stream = which[1] or await _first_stream(scheduler, uid)
        offset = 0
        while True:
            piece = await scheduler.read_log(uid, stream, offset, LOG_PIECE_BYTES)
            out.write(piece.data)
            out.flush()
            offset = piece.offset + len(piece.data)
            if offset < piece.total:
                continue
            if piece.complete or not follow:
                return
            await asyncio.sleep(FOLLOW_S)
    except ValueError as problem:
        raise SiteProblem(str(problem)) from problem
    finally:
        await scheduler.close()


async def _first_stream(scheduler: SiteScheduler, uid: str) -> str:
    extents = await scheduler.log_extents(uid)
    return extents[0].stream if extents else "output"


async def kill(state: Path, name: str, grace_s: int) -> str:
    """Tell an attempt to stop; returns its uid."""
    refuse_elsewhere(state)
    uid = await resolve(state, name)
    try:
        return str(await ask_agent(state, "stop", uid=uid, grace_s=grace_s))
    except AgentAway:
        pass  # the keeper can be told without it
    except AgentRefused as problem:
        raise SiteProblem(str(problem)) from problem
    scheduler = open_scheduler(state)
    try:
        await scheduler.cancel(uid, grace_s)
    finally:
        await scheduler.close()
    return uid


async def resolve(state: Path, name: str) -> str:
    """The attempt meant: its uid, or its job's id if one attempt of that is here."""
    rows = await jobs(state)
    if any(row["uid"] == name for row in rows):
        return name
    found = [row["uid"] for row in rows if row["uid"].rpartition("-")[0] == name]
    if len(found) == 1:
        return str(found[0])
    if found:
        raise SiteProblem(f"{name} has several attempts here: {', '.join(found)}")
    raise SiteProblem(f"no attempt {name} at this site")


async def leave(state: Path, *, force: bool) -> dict[str, Any]:
    """End the keeper and remove the identity. Raises SiteProblem while something runs."""
    refuse_elsewhere(state)
    if is_running(read_status(state)):
        raise SiteProblem("the agent runs; stop it first")
    from regional_agent.site_scheduler import has_batch_system

    keeper = await keeper_seen(state)
    if keeper.answers or has_batch_system(state):
        scheduler = open_scheduler(state)
        try:
            await scheduler.shut_down(kill=force)
        except ValueError as problem:
            raise SiteProblem(f"{problem}; --force ends them") from problem
        finally:
            await scheduler.close()
    cluster = ""
    with contextlib.suppress(IdentityError):
        cluster = load_identity(state).cluster
    shutil.rmtree(identity_directory(state), ignore_errors=True)
    return {"cluster": cluster, "state_dir": str(state)}
