"""`tradewind token`: list, make and revoke tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.exits import Exit, Failure, note
from broker.cli.federation_views import plain_table
from broker.cli.formatting import text
from broker.cli.options import Json, group
from broker.cli.output import say, show, show_json
from broker.cli.session import ask, now

app = group("Tokens of users and operators (for operators).")


@app.command("list")
def list_tokens(as_json: Json = False) -> int:
    """Tokens, without their secrets."""
    found = ask(lambda client: client.tokens())
    if as_json:
        show_json({"tokens": found})
    else:
        show(plain_table(found, now(), "no tokens"))
    return Exit.OK


@app.command()
def make(
    subject: Annotated[str, typer.Argument(metavar="WHO", help="Whom it stands for.")],
    tenant: Annotated[
        list[str] | None, typer.Option(help="For whom they may act; repeatable.")
    ] = None,
    operator: Annotated[bool, typer.Option("--operator", help="Allow everything.")] = False,
    ttl: Annotated[str | None, typer.Option(help="How long it holds, such as 90d.")] = None,
    as_json: Json = False,
) -> int:
    """Make a token; its secret is shown this once."""
    if operator and tenant:
        raise Failure(
            Exit.BAD_INPUT, "an operator acts for every tenant", "leave --tenant or --operator out"
        )
    role = "operator" if operator else "user"
    made = ask(lambda client: client.make_token(subject, tenant or (), role=role, ttl=ttl))
    if as_json:
        show_json(made)
        return Exit.OK
    say(str(made.get("token")))
    note(f"shown this once; revoke it with: tradewind token revoke {text(made.get('id'))}")
    return Exit.OK


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="Of `tw_ID_SECRET`.")],
    as_json: Json = False,
) -> int:
    """Make a token open nothing any more."""
    if token.startswith("tw_"):
        token = token.split("_")[1]
    answer = ask(lambda client: client.revoke_token(token))
    if as_json:
        show_json(answer)
    else:
        say(f"{token} revoked")
    return Exit.OK
