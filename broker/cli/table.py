"""Every command of `tradewind`, one line each.

To add one: write a module whose function takes typer options (or whose `app` is a `typer.Typer`
with sub-commands), and add an `Entry` here naming it as `module:attribute`. The module is imported
when its command is run and not before, so it may need extras: name the one it needs in `extra`.
A function whose first parameter is a `typer.Context` finds what stood after `--` in
`context.obj` when `takes_command` is set. Return an `int` for an exit code; raise ClientError, or
what `broker.cli.exits` knows, for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its name, where it lives, one line of help, and under which heading."""

    name: str
    target: str
    help: str
    section: str
    extra: str = ""
    takes_command: bool = False


_JOBS, _FEDERATION, _HERE = "Jobs", "Federation", "This machine"
_COMMANDS = "broker.cli.commands"

TABLE: tuple[Entry, ...] = (
    Entry("submit", f"{_COMMANDS}.submit:submit",
          "Submit a job file, or a command after --", _JOBS, takes_command=True),
    Entry("plan", f"{_COMMANDS}.plan:plan",
          "Where a job would go; or solve a planning problem", _JOBS),
    Entry("import", f"{_COMMANDS}.import_file:import_file",
          "What a script of another system means as a job", _JOBS),
    Entry("jobs", f"{_COMMANDS}.jobs:jobs", "List jobs over the whole federation", _JOBS),
    Entry("show", f"{_COMMANDS}.jobs:show_one", "Everything about one job", _JOBS),
    Entry("explain", f"{_COMMANDS}.explain:explain",
          "Why a job is where it is, or why it waits", _JOBS),
    Entry("logs", f"{_COMMANDS}.logs:logs", "What a job printed; -f follows it", _JOBS),
    Entry("fetch", f"{_COMMANDS}.fetch:fetch", "Bring a job's results here", _JOBS),
    Entry("wait", f"{_COMMANDS}.wait:wait", "Wait until jobs have ended", _JOBS),
    Entry("cancel", f"{_COMMANDS}.intents:cancel", "Stop jobs", _JOBS),
    Entry("hold", f"{_COMMANDS}.intents:hold", "Keep jobs from starting", _JOBS),
    Entry("release", f"{_COMMANDS}.intents:release", "Let held jobs start", _JOBS),
    Entry("priority", f"{_COMMANDS}.intents:priority", "Change a job's priority", _JOBS),
    Entry("status", f"{_COMMANDS}.federation:status", "The federation in a few lines", _FEDERATION),
    Entry("clusters", f"{_COMMANDS}.clusters:app",
          "List, show, invite, drain and remove clusters", _FEDERATION),
    Entry("prices", f"{_COMMANDS}.federation:prices", "Prices per pool, with source and age",
          _FEDERATION),
    Entry("latency", f"{_COMMANDS}.federation:latency", "Round trips between regions", _FEDERATION),
    Entry("usage", f"{_COMMANDS}.federation:usage", "What was used and paid", _FEDERATION),
    Entry("policy", f"{_COMMANDS}.policy:app",
          "Apply, list, show, test and roll back routing policies", _FEDERATION),
    Entry("whatif", f"{_COMMANDS}.whatif:whatif",
          "Who moves, and what it costs, in a changed world", _FEDERATION),
    Entry("decide", f"{_COMMANDS}.decide:app",
          "What decisions gained, and how predictions came true", _FEDERATION),
    Entry("replay", f"{_COMMANDS}.replay:replay",
          "Decide a stored decision again, and see what differs", _FEDERATION, "broker"),
    Entry("tenants", f"{_COMMANDS}.tenants:app", "List, show and set weights, quotas and cohorts",
          _FEDERATION),
    Entry("datasets", f"{_COMMANDS}.datasets:app", "List, write and forget data known by name",
          _FEDERATION),
    Entry("freeze", f"{_COMMANDS}.freeze:app",
          "Keep what runs from being stopped for others; approve", _FEDERATION),
    Entry("token", f"{_COMMANDS}.token:app", "List, make and revoke tokens", _FEDERATION),
    Entry("whoami", f"{_COMMANDS}.federation:whoami", "Who your token says you are", _FEDERATION),
    Entry("up", f"{_COMMANDS}.up:up", "Keep a federation on this machine", _HERE, "broker"),
    Entry("down", f"{_COMMANDS}.up:down", "Stop the federation on this machine", _HERE),
    Entry("demo", f"{_COMMANDS}.demo:demo", "See a whole federation at work, then gone", _HERE,
          "broker"),
    Entry("simulate", f"{_COMMANDS}.simulate:simulate",
          "Run a scenario in virtual time: what if", _HERE, "broker"),
    Entry("broker", f"{_COMMANDS}.broker:app", "Run a broker", _HERE, "broker"),
    Entry("bench", f"{_COMMANDS}.bench:app", "Measure this build beside floors of the same run",
          _HERE, "broker"),
    Entry("doctor", f"{_COMMANDS}.doctor:doctor", "Check this machine and the way to the broker",
          _HERE),
    Entry("version", f"{_COMMANDS}.federation:version", "Versions here and at the broker", _HERE),
)  # fmt: skip


def find(name: str) -> Entry | None:
    """The entry of that name."""
    return next((entry for entry in TABLE if entry.name == name), None)
