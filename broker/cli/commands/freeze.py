"""`tradewind freeze`: may anything that runs be stopped for the sake of others?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from broker.cli.exits import Exit
from broker.cli.federation_views import proposal_line
from broker.cli.formatting import mapping, moment, text
from broker.cli.options import Json, group
from broker.cli.output import say, show_facts, show_json
from broker.cli.session import ask, now

app = group("Keep what runs from being stopped for others (for operators).")

Why = Annotated[str, typer.Option(help="For those who read it later.")]


@app.command()
def on(why: Why = "", as_json: Json = False) -> int:
    """Stop nothing for others until `freeze off`; what waits is placed as before."""
    return _told(ask(lambda client: client.set_freeze(frozen=True, why=why)), as_json=as_json)


@app.command()
def off(why: Why = "", as_json: Json = False) -> int:
    """Let lenders have their own back, and priorities count, again."""
    return _told(ask(lambda client: client.set_freeze(frozen=False, why=why)), as_json=as_json)


@app.command()
def status(as_json: Json = False) -> int:
    """Whether it is frozen, and what waits for approval."""
    return _told(ask(lambda client: client.freeze()), as_json=as_json)


@app.command()
def approve(
    cycle: Annotated[str, typer.Argument(metavar="CYCLE", help="As `freeze status` names it.")],
    why: Why = "",
    as_json: Json = False,
) -> int:
    """Let a cycle stop what it proposed, once."""
    answer = ask(lambda client: client.approve(cycle, why))
    if as_json:
        show_json(answer)
    else:
        say(f"cycle {text(cycle)} is approved: it is carried out with the next decision")
    return Exit.OK


def _told(answer: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        show_json(answer)
        return Exit.OK
    facts = [("frozen", "yes" if answer.get("frozen") else "no")]
    if answer.get("by"):
        said = f"{text(answer.get('by'))}, {moment(answer.get('at'), now())}"
        facts.append(("said by", f"{said}: {answer['why']}" if answer.get("why") else said))
    facts.append(("waits", proposal_line(mapping(answer.get("proposal")))))
    show_facts(facts)
    return Exit.OK
