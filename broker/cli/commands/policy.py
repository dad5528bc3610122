"""`tradewind policy`: apply, list, show, test, history, roll back routing policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from broker.cli.exits import Exit, Failure, complain, note
from broker.cli.formatting import mappings, text
from broker.cli.options import Json, group
from broker.cli.output import say, show, show_facts, show_json
from broker.cli.policy_views import (
    history_table,
    move_table,
    policy_facts,
    policy_table,
    trial_lines,
)
from broker.cli.sensitivity import sensitivity_of, shift_table, trial_table, verdict
from broker.cli.session import ask, now
from broker.cli.whatif_views import show_worlds
from broker.client.decisions import stored_problem
from broker.client.errors import Refused

app = group("Routing policies: where jobs may run and what that may cost (alone: list).")

_ANY_NAME = "unnamed"
"""Stands in the path for a text without a readable name: the broker says what is wrong with it."""

PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="The policy, as YAML.")]
PolicyName = Annotated[str, typer.Argument(metavar="NAME")]
Why = Annotated[str, typer.Option(help="Kept with the version and shown in its history.")]


@app.callback(invoke_without_command=True)
def policy(context: typer.Context, as_json: Json = False) -> int:
    """Routing policies: where jobs may run and what that may cost (alone: list)."""
    if context.invoked_subcommand is None:
        return _list(as_json=as_json)
    return Exit.OK


@app.command("list")
def list_policies(as_json: Json = False) -> int:
    """The policies in force, in the order in which they are matched."""
    return _list(as_json=as_json)


def _list(*, as_json: bool) -> int:
    found = ask(lambda client: client.policies())
    if as_json:
        show_json(found)
        return Exit.OK
    show(policy_table(found, now()).without_blank_columns())
    for entry in mappings(found.get("unreadable")):
        note(f"note: {text(entry.get('name'))} cannot be read here: {text(entry.get('why'))}")
    return Exit.OK


@app.command()
def apply(file: PolicyFile, why: Why = "", as_json: Json = False) -> int:
    """Put a policy in force; queued jobs follow at once (operators)."""
    source = _read(file)
    name = _name_in(source)
    try:
        applied = ask(lambda client: client.apply_policy(name, source, why))
    except Refused as refused:
        return _faults(refused, file)
    return _applied(applied, as_json=as_json)


@app.command("show")
def show_policy(
    name: PolicyName,
    version: Annotated[int | None, typer.Option(min=1, help="An older version.")] = None,
    source: Annotated[bool, typer.Option("--source", help="The text as applied.")] = False,
    as_json: Json = False,
) -> int:
    """One policy: what it governs and what it requires."""
    found = ask(lambda client: client.policy(name, version))
    if as_json:
        show_json(found)
    elif source:
        if not isinstance(found.get("source"), str):
            raise Failure(Exit.NOT_ALLOWED, "only operators may read the text of a policy")
        say(str(found["source"]), end="")
    else:
        show_facts(policy_facts(found, now()))
    return Exit.OK


@app.command()
def test(
    file: PolicyFile,
    problem: Annotated[
        str | None,
        typer.Option(metavar="FILE[.gz]", help="On this problem instead; needs no broker."),
    ] = None,
    cycle: Annotated[
        str | None, typer.Option(help="On this stored decision (`tradewind replay --list`).")
    ] = None,
    budget_s: Annotated[float, typer.Option(help="CPU seconds for each decision on it.")] = 5.0,
    as_json: Json = False,
) -> int:
    """Which queued and recent jobs a policy would move, and what that costs (operators).

    With --problem or --cycle: what it would have moved in a saved problem.
    """
    source = _read(file)
    if problem is not None or cycle is not None:
        return _test_on_saved((file, source), (problem, cycle), budget_s, as_json=as_json)
    try:
        trial = ask(lambda client: client.test_policy(source))
    except Refused as refused:
        return _faults(refused, file)
    if as_json:
        show_json(trial)
        return Exit.OK
    for line in trial_lines(trial):
        say(line)
    say()
    show(move_table(trial).without_blank_columns())
    for remark in trial.get("notes") or ():
        note(f"note: {text(remark)}")
    return Exit.OK


def _test_on_saved(
    policy: tuple[Path, str], saved: tuple[str | None, str | None], budget_s: float, *,
    as_json: bool,
) -> int:  # fmt: skip
    from broker.cli.whatif_file import compared_worlds, problem_of, read_or_fail

    read = read_or_fail(policy[1], str(policy[0]))
    file, cycle = saved
    if file is not None and cycle is not None:
        raise Failure(Exit.BAD_INPUT, "a problem and a stored decision", "give one of them")
    if cycle is not None:
        data = ask(lambda client: stored_problem(client, cycle))
        before = problem_of(f"cycle {cycle}", data)
    else:
        before = problem_of(str(file))
    told = compared_worlds(before, before, [read], budget_s)
    if as_json:
        show_json(told)
    else:
        say(f"{policy[0]} governs {text(told['governed'])} of {len(before.jobs)} entries.")
        say()
        show_worlds(told, now(), ("without it", "with it"))
    return Exit.OK


@app.command()
def sensitivity(
    problem: Annotated[
        str | None,
        typer.Option(metavar="FILE[.gz]", help="Of this problem; else the last stored decision."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Whether the ranking of clusters survives weights times 0.5 and 2 (operators, or a FILE)."""
    told = sensitivity_of(problem)
    if as_json:
        show_json(told)
        return Exit.OK
    say(verdict(told))
    if not any(trial.get("classes") for trial in told["trials"]):
        return Exit.OK
    say()
    show(trial_table(told))
    shifts = shift_table(told)
    if shifts.rows:
        say()
        show(shifts)
    return Exit.OK


@app.command()
def history(name: PolicyName, as_json: Json = False) -> int:
    """Every version there was, newest first."""
    found = ask(lambda client: client.policy_history(name))
    if as_json:
        show_json(found)
    else:
        show(history_table(found, now()).without_blank_columns())
    return Exit.OK


@app.command()
def rollback(
    name: PolicyName,
    to: Annotated[int, typer.Option(min=1, help="The version whose text comes back.")],
    why: Why = "",
    as_json: Json = False,
) -> int:
    """Bring an older version back, as a new version (operators)."""
    applied = ask(lambda client: client.roll_back_policy(name, to, why))
    return _applied(applied, as_json=as_json)


def _applied(applied: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        show_json(applied)
        return Exit.OK
    label = f"{text(applied.get('name'))}@{text(applied.get('version'))}"
    same = applied.get("unchanged") is True
    say(f"{label} {'was in force already' if same else 'is in force'}")
    return Exit.OK


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Exit.BAD_INPUT, f"{file} cannot be read: {error}") from None


def _name_in(source: str) -> str:
    """The name a text gives itself, where it can be read without judging the rest."""
    try:
        node = yaml.compose(source, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return _ANY_NAME
    for key, value in node.value if isinstance(node, yaml.nodes.MappingNode) else ():
        named = isinstance(value, yaml.nodes.ScalarNode) and value.value.isascii()
        if key.value == "name" and named and value.value.replace("-", "").isalnum():
            lower = str(value.value).lower()
            return lower if lower[0].isalpha() and len(lower) <= 32 else _ANY_NAME
    return _ANY_NAME


def _faults(refused: Refused, file: Path) -> int:
    """Faults as compilers tell them: FILE:LINE:COLUMN."""
    faults = mappings(refused.problem.document.get("errors"))
    if refused.problem.code != "invalid_policy" or not any("line" in f for f in faults):
        raise refused
    some = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    complain(f"{file} is not a policy: {some}")
    for fault in faults:
        path, value = fault.get("path"), fault.get("value")
        place = f"{file}:{text(fault.get('line'))}:{text(fault.get('column'))}"
        named = f" {text(path)}:" if path else ""
        got = f" (got {text(value)})" if value else ""
        note(f"{place}:{named} {text(fault.get('problem'))}{got}; {text(fault.get('remedy'))}")
    return Exit.BAD_INPUT
