"""`tradewind replay`: a stored decision, decided again here."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.cli.exits import Exit, Failure, note
from broker.cli.options import Json
from broker.cli.output import say, show, show_facts, show_json
from broker.cli.replay_views import cycle_table, difference_table, replay_facts
from broker.cli.session import ask, now
from broker.client.decisions import stored_cycles, stored_problem
from broker.feedback.decisions import CYCLE_PATTERN


def replay(
    cycle: Annotated[
        str | None, typer.Argument(metavar="[CYCLE | FILE]", help="A cycle, or a file of one.")
    ] = None,
    list_stored: Annotated[
        bool, typer.Option("--list", help="The decisions that are stored, newest first.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="So many with --list.")] = 20,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE[.gz]", help="Keep its problem, for plan --problem."),
    ] = None,
    budget_s: Annotated[
        float | None, typer.Option(help="CPU seconds to spend; those it had by default.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Decide a stored decision again, here, and say what differs (operators).

    Exit 0: the same plan; 1: another one. A FILE that was saved needs no broker.
    """
    if list_stored or cycle is None:
        if cycle is not None or save is not None:
            raise Failure(Exit.BAD_INPUT, "--list takes no cycle", "leave one of them out")
        return _list(limit, as_json=as_json)
    if save is None:
        return _decide_again(_read(cycle), budget_s, as_json=as_json)
    data = _read(cycle)
    try:
        save.write_bytes(gzip.compress(data) if save.suffix == ".gz" else data)
    except OSError as error:
        raise Failure(Exit.BAD_INPUT, f"{save} cannot be written: {error}") from None
    note(f"decide it with: tradewind replay {save}, or tradewind plan --problem {save}")
    return _decide_again(data, budget_s, as_json=as_json)


def _list(limit: int, *, as_json: bool) -> int:
    found = ask(lambda client: stored_cycles(client, limit))
    if as_json:
        show_json(found)
    else:
        show(cycle_table(found, now()))
    return Exit.OK


def _read(wanted: str) -> bytes:
    """A cycle as the broker stored it, or a file."""
    if re.fullmatch(CYCLE_PATTERN, wanted, re.ASCII) and not Path(wanted).exists():
        return ask(lambda client: stored_problem(client, wanted))
    from broker.cli.plan_problem import read_problem_bytes
    from broker.decide.problem_file import ProblemError

    try:
        return read_problem_bytes(wanted)
    except (ProblemError, OSError, EOFError, zlib.error) as error:
        text = f"{wanted} is neither a cycle nor a file that can be read: {error}"
        raise Failure(Exit.BAD_INPUT, text, "tradewind replay --list shows cycles") from None


def _decide_again(data: bytes, budget_s: float | None, *, as_json: bool) -> int:
    from broker.cli.plan_problem import cpu_time_s
    from broker.control.storing import answer_without_nodes, build_facts
    from broker.decide.decision import Budget, decide
    from broker.decide.problem_file import ProblemError, parse_problem
    from broker.decide.replay import differences, possible_causes

    try:
        problem = parse_problem(data)
    except ProblemError as error:
        raise Failure(Exit.BAD_INPUT, f"not a planning problem: {error}") from None
    recorded: dict[str, Any] = dict(problem.recorded or {})
    if not isinstance(recorded.get("answer"), dict):
        text = "nothing was recorded with this problem"
        raise Failure(Exit.BAD_INPUT, text, "tradewind plan --problem decides it")
    given_s = recorded.get("budget_s")
    spend_s = budget_s or (given_s if isinstance(given_s, int | float) and given_s > 0 else 5.0)
    before_s = cpu_time_s()
    plan = decide(problem, Budget(cpu_s=spend_s))
    answer = answer_without_nodes(problem, plan, cpu_time_s() - before_s)
    found = differences(recorded["answer"], answer)
    causes = possible_causes(recorded, build_facts()) if found else []
    if found and budget_s is not None and budget_s != given_s:
        causes.insert(0, f"the budget was {given_s} s, here it is {budget_s:g} s")
    told = {
        "cycle": recorded.get("cycle"),
        "same": not found,
        "budget_s": spend_s,
        "differences": [{"what": d.what, "recorded": d.recorded, "now": d.now} for d in found],
        "possible_causes": causes,
        "recorded": recorded,
        "answer": answer,
    }
    if as_json:
        show_json(told)
    else:
        show_facts(replay_facts(told, now()))
        if found:
            say()
            show(difference_table(told))
            for cause in causes:
                say(f"possible cause: {cause}")
    return Exit.OK if not found else Exit.JOB_FAILED
