"""The command line of an agent: `tradewind-agent`.

What concerns the site (status, jobs, logs, kill, doctor) works without any broker, and without
the agent: the keeper and the files in the state directory are enough.

Each command imports what it needs when it runs: a look at a site does not load the session.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

# Jobs are children of the keeper, never of this process: gRPC need not prepare for forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import typer

from federation.system import SystemClock
from regional_agent import site_cli, site_view
from regional_agent.act.schedulers.port import SchedulerUnavailable
from regional_agent.identity import IdentityError
from regional_agent.site_cli import AsJson, StateDir
from regional_agent.site_cli import fail as _leave_with
from regional_agent.site_cli import state_of as _state
from regional_agent.site_view import SiteProblem

if TYPE_CHECKING:
    from regional_agent.app import Agent
    from regional_agent.conformance.suite import Verdict

EXIT_FAULT = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="tradewind-agent",
    help="Joins this site to a federation and runs what it is sent.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
_T = TypeVar("_T")
Attempt = Annotated[
    str,
    typer.Argument(metavar="ATTEMPT", help="An attempt, or a job with one attempt here."),
]


@app.command()
def join(
    url: Annotated[str, typer.Argument(help="The broker's API, https://...")],
    token: Annotated[str, typer.Option("--token", help="From `tradewind clusters invite`.")],
    ca_hash: Annotated[str, typer.Option("--ca-hash", help="SHA-256 of the federation's CA.")],
    state_dir: StateDir = None,
    proxy: Annotated[
        str | None,
        typer.Option(help="HTTP proxy to go out through (CONNECT); else HTTPS_PROXY counts."),
    ] = None,
    replace: Annotated[bool, typer.Option(help="Give up the identity held here.")] = False,
    as_json: AsJson = False,
) -> None:
    """Become the agent of the cluster an invitation names."""
    from regional_agent import enrol
    from regional_agent.proxying import proxies

    state = _state(state_dir)
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        _fail(f"{state} cannot be made: {problem.strerror}; --state-dir names another place")
    door = enrol.Door(url, proxies(proxy, os.environ).to_url(url))
    try:
        identity = _do(enrol.join(door, token, ca_hash, state, replace=replace))
    except enrol.EnrolError as problem:
        _fail(str(problem))
    if as_json:
        _print_json(
            {
                "cluster": identity.cluster,
                "region": identity.region,
                "certificate_expires_ms": identity.facts.not_after_ms,
                "session_addresses": identity.session_addresses,
                "state_dir": str(state),
            }
        )
        return
    typer.echo(f"joined as cluster {identity.cluster} in region {identity.region}")
    typer.echo(f"next: tradewind-agent run --state-dir {state}")


@app.command()
def run(
    state_dir: StateDir = None,
    config: Annotated[Path | None, typer.Option(help="Settings; else agent.yaml there.")] = None,
    latency_responder: Annotated[
        str, typer.Option(help="host:port where other sites may measure the way to here.")
    ] = "",
    report_sink: Annotated[str, typer.Option(help="session or etcd.")] = "",
    stop_jobs: Annotated[
        bool, typer.Option("--stop-jobs", help="End jobs and keeper when the agent ends.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v")] = False,
) -> None:
    """Run the agent. SIGTERM ends it at once; keeper and jobs live on."""
    from federation.log_lines import configure
    from regional_agent.act.journal import JournalInUse
    from regional_agent.app import AgentError, build
    from regional_agent.ensure import AgentRuns, hold_lock
    from regional_agent.settings import SettingsError, load_settings
    from regional_agent.site_view import with_overrides

    state = _state(state_dir)
    try:
        settings = load_settings(state, config)
        configure(settings.log_format, sys.stderr, verbose=verbose)
        overrides: dict[str, Any] = {"stop_jobs": stop_jobs}
        if latency_responder:
            overrides["latency_responder"] = latency_responder
        if report_sink:
            overrides["report_sink"] = report_sink
        lock = hold_lock(state) if state.is_dir() else -1
        agent = build(with_overrides(settings, overrides))
    except (SettingsError, AgentError, AgentRuns, JournalInUse, ValueError) as problem:
        _fail(str(problem))
    asyncio.run(_until_stopped(agent))
    if lock >= 0:
        os.close(lock)


@app.command()
def ensure(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Start the agent in the background unless it runs already; for cron and chains of jobs."""
    from regional_agent.ensure import ensure as ensured

    done = _do(ensured(_state(state_dir)))
    if as_json:
        _print_json(done.as_json())
    else:
        typer.echo(f"agent {'started' if done.started else 'runs'}, pid {done.pid}")


@app.command()
def impact(
    measure: Annotated[str, typer.Option(help="How long to look, such as 1m.")] = "30s",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """What agent and keeper cost this machine: CPU and memory, measured."""
    from regional_agent.impact import impact as measured_impact

    measure_s = site_cli.seconds("--measure", measure)
    found = _do(measured_impact(_state(state_dir), measure_s, SystemClock().monotonic_s))
    if as_json:
        _print_json(found.as_json())
    else:
        typer.echo(found.text())


@app.command()
def status(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """How the agent, its keeper and its session stand."""
    shown = _do(site_view.status(_state(state_dir)))
    if as_json:
        _print_json(shown)
    else:
        typer.echo(site_view.status_text(shown))
    raise typer.Exit(0 if shown["agent"]["running"] else EXIT_FAULT)


@app.command()
def jobs(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """The attempts at this site, ended ones too until the broker has them in its books."""
    rows = _do(site_view.jobs_here(_state(state_dir)))
    if as_json:
        _print_json(rows)
    else:
        typer.echo(site_view.jobs_text(rows))


@app.command()
def logs(
    uid: Attempt,
    stream: Annotated[str, typer.Option(help="Which log; the first one if left out.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until it is complete.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Print a log as it lies at this site."""
    _do(site_view.print_log(_state(state_dir), (uid, stream), sys.stdout.buffer, follow=follow))


@app.command()
def kill(
    uid: Attempt,
    grace: site_cli.Grace = "10s",
    grace_s: Annotated[int | None, typer.Option(hidden=True, min=0)] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """End an attempt at this site; the broker is told that it was cancelled here."""
    wait_s = site_cli.seconds("--grace", grace) if grace_s is None else grace_s
    ended = _do(site_view.kill(_state(state_dir), uid, wait_s))
    if as_json:
        _print_json({"uid": ended})
    else:
        typer.echo(f"{ended} is told to stop")


@app.command()
def doctor(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Check what an agent needs, one line each; exit 1 when something is wrong."""
    from regional_agent.site_doctor import doctor as looked_at

    checks = _do(looked_at(_state(state_dir), SystemClock().now_ms()))
    if as_json:
        _print_json([check.__dict__ for check in checks])
    else:
        for check in checks:
            mark = "ok  " if check.ok else "FAIL"
            typer.echo(f"{mark} {check.name}: {check.text}")
    raise typer.Exit(0 if all(check.ok for check in checks) else EXIT_FAULT)


@app.command()
def conformance(
    cases: Annotated[list[str] | None, typer.Argument(help="Some cases; else all.")] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Try on this site's own scheduler what an agent relies on; exit 1 when something fails.

    Runs short jobs of its own, at the site's own pace: some minutes.
    """
    from regional_agent.conformance import suite
    from regional_agent.conformance.command import conformance as try_site

    def told(verdict: Verdict) -> None:
        typer.echo(f"{verdict.case}: {verdict.result}", err=True)

    state, clock = _state(state_dir), SystemClock()
    kind, found = _do(try_site(state, clock, cases or (), told))
    if as_json:
        _print_json(suite.as_json(kind, found))
    else:
        typer.echo(suite.table(found))
    raise typer.Exit(EXIT_FAULT if any(v.result == suite.FAILED for v in found) else 0)


@app.command()
def leave(
    state_dir: StateDir = None,
    force: Annotated[bool, typer.Option(help="Also while attempts run: they are ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """End jobs and keeper and give up the identity. Stop the agent first."""
    gone = _do(site_view.leave(_state(state_dir), force=force))
    if as_json:
        _print_json(gone)
    else:
        typer.echo(f"cluster {gone['cluster'] or '(none)'} left; remove it at the broker as well")


site_cli.add_to(app)


@app.command(name="version")
def show_version(as_json: AsJson = False) -> None:
    """The version of this agent."""
    from regional_agent.app import version

    if as_json:
        _print_json({"version": version()})
    else:
        typer.echo(version())


def main() -> None:
    """Entry point."""
    app()


async def _until_stopped(agent: Agent) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP has the site's rules read anew."""
    from regional_agent.app import AgentError
    from regional_agent.settings import SettingsError
    from regional_agent.worker import JournalFailed

    running = asyncio.create_task(agent.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    loop.add_signal_handler(signal.SIGHUP, agent.control.reread)
    await asyncio.wait([running])
    problem = None if running.cancelled() else running.exception()
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    if isinstance(problem, AgentError | JournalFailed | SettingsError):
        _fail(str(problem))
    if problem is not None:
        raise problem


def _do(work: Coroutine[Any, Any, _T]) -> _T:
    """Run it; what is the user's to know is one line and exit code 1."""
    try:
        return asyncio.run(work)
    except (IdentityError, SiteProblem, SchedulerUnavailable) as problem:
        _fail(str(problem))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _fail(text: str) -> NoReturn:
    _leave_with(text, EXIT_FAULT)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, default=str))


if __name__ == "__main__":
    main()
