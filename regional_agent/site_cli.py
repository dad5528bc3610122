"""The commands by which a site's people rule over the federation's work there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from federation.system import SystemClock
from federation.units import InvalidQuantity, parse_duration_s, parse_rfc3339_ms
from regional_agent import site_commands
from regional_agent.act.schedulers.port import SchedulerUnavailable
from regional_agent.site_commands import Outcome
from regional_agent.site_view import SiteProblem
from regional_agent.state_dir import default_state_dir

StateDir = Annotated[
    Path | None,
    typer.Option("--state-dir", help="Where this agent keeps its identity, journal and jobs."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON value on stdout.")]
Reason = Annotated[str, typer.Option("--reason", help="Told to the broker and to users.")]
Grace = Annotated[str, typer.Option("--grace", help="Between SIGTERM and SIGKILL, such as 5m.")]
EXIT_FAULT = 1
EXIT_USAGE = 2


def pause(reason: Reason = "", state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Take nothing new from the federation; what runs goes on. Needs no broker, no agent."""
    _show(site_commands.pause(state_of(state_dir), _now_ms(), reason), as_json=as_json)


def resume(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Take work again after pause, drain or evict."""
    _show(site_commands.resume(state_of(state_dir), _now_ms()), as_json=as_json)


def drain(
    deadline: Annotated[
        str | None,
        typer.Option(
            help="By when it is to be empty: 2h from now, or an RFC 3339 time; else that of the "
            "drain that is on, else 24h.",
        ),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(help="Between SIGTERM and SIGKILL; else that of the drain that is on, or 5m."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until nothing is left.")] = False,
    reason: Reason = "",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Take nothing new, and send away what runs at the deadline; again: shows what is left."""
    now_ms = _now_ms()
    deadline_ms = None if deadline is None else _deadline_ms(deadline, now_ms)
    grace_s = None if grace is None else seconds("--grace", grace)
    state = state_of(state_dir)
    changed = site_commands.drain(state, now_ms, deadline_ms, grace_s, reason)
    _show(changed, as_json=as_json)
    if wait:
        run_or_fail(site_commands.wait_empty(state))


def evict(
    attempts: Annotated[
        list[str] | None,
        typer.Argument(metavar="ATTEMPT", help="Attempts or jobs; none: all, and pause."),
    ] = None,
    grace: Grace = "5m",
    reason: Reason = "",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Stop attempts so that they run elsewhere; the broker is told that the site evicted them."""
    names, grace_s = attempts or [], seconds("--grace", grace)
    state = state_of(state_dir)
    _show(site_commands.evict(state, _now_ms(), names, grace_s, reason), as_json=as_json)


def ban(
    name: Annotated[str, typer.Argument(metavar="USER|TENANT")],
    reason: Reason = "",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Take nothing more of a user or tenant; what runs goes on (see evict)."""
    _show(site_commands.ban(state_of(state_dir), _now_ms(), name, reason), as_json=as_json)


def unban(
    name: Annotated[str, typer.Argument(metavar="USER|TENANT")],
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Take work of a user or tenant again."""
    _show(site_commands.unban(state_of(state_dir), name), as_json=as_json)


COMMANDS: tuple[Callable[..., None], ...] = (pause, resume, drain, evict, ban, unban)


def add_to(app: typer.Typer) -> None:
    """Put these commands into a command line."""
    for command in COMMANDS:
        app.command()(command)


def state_of(named: Path | None) -> Path:
    """The state directory meant."""
    return (named or default_state_dir()).absolute()


def seconds(option: str, text: str) -> int:
    """A duration of the command line; exits with a usage error for anything else."""
    try:
        return parse_duration_s(text)
    except InvalidQuantity as problem:
        fail(f"{option}: {problem}", EXIT_USAGE)


def run_or_fail(work: Coroutine[Any, Any, Any]) -> Any:
    """Run it; what is the user's to know is one line and exit code 1."""
    try:
        return asyncio.run(work)
    except (SiteProblem, SchedulerUnavailable) as problem:
        fail(str(problem), EXIT_FAULT)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def fail(text: str, code: int) -> NoReturn:
    """Say why, and leave."""
    typer.echo(f"tradewind-agent: {text}", err=True)
    raise typer.Exit(code)


def _deadline_ms(text: str, now_ms: int) -> int:
    if text[:1].isdigit() and "T" not in text:
        return now_ms + seconds("--deadline", text) * 1000
    try:
        at_ms = parse_rfc3339_ms(text)
    except InvalidQuantity as problem:
        fail(f"--deadline: {problem}", EXIT_USAGE)
    if at_ms <= now_ms:
        fail(f"--deadline: {text} has passed; evict sends away at once", EXIT_USAGE)
    return at_ms


def _show(work: Coroutine[Any, Any, Outcome], *, as_json: bool) -> None:
    done = run_or_fail(work)
    typer.echo(json.dumps(done.as_json()) if as_json else done.text())


def _now_ms() -> int:
    return SystemClock().now_ms()
