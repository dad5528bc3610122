"""`tradewind clusters`: list, show, invite, drain, remove."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from broker.cli.exits import Exit, Failure, note
from broker.cli.federation_views import (
    cluster_facts,
    cluster_table,
    is_silent,
    pool_table,
)
from broker.cli.formatting import moment, text
from broker.cli.options import Json, group
from broker.cli.output import say, show, show_facts, show_json
from broker.cli.session import ask, now
from federation.units import InvalidQuantity, format_utc, parse_duration_s, parse_rfc3339_ms

app = group("Clusters of the federation (without a sub-command: list).")

ClusterName = Annotated[str, typer.Argument(metavar="CLUSTER")]


@app.callback(invoke_without_command=True)
def clusters(context: typer.Context, as_json: Json = False) -> int:
    """Clusters of the federation (without a sub-command: list)."""
    if context.invoked_subcommand is None:
        return _list(as_json=as_json)
    return Exit.OK


@app.command("list")
def list_clusters(as_json: Json = False) -> int:
    """One line per cluster: state, what is free, how old its report is."""
    return _list(as_json=as_json)


def _list(*, as_json: bool) -> int:
    found = ask(lambda client: client.clusters())
    if as_json:
        show_json({"clusters": found})
        return Exit.OK
    show(cluster_table(found, now()).without_blank_columns())
    for cluster in found:
        if is_silent(cluster):
            note(f"note: {text(cluster.get('name'))} is silent: its work is unknown, not gone")
    return Exit.OK


@app.command("show")
def show_cluster(cluster: ClusterName, as_json: Json = False) -> int:
    """One cluster and its pools."""
    found = ask(lambda client: client.cluster(cluster))
    if as_json:
        show_json(found)
        return Exit.OK
    show_facts(cluster_facts(found, now()))
    say()
    show(pool_table(found, now()).without_blank_columns())
    return Exit.OK


@app.command()
def invite(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new cluster's name.")],
    region: Annotated[str, typer.Option(help="Where it stands.")],
    ttl: Annotated[str | None, typer.Option(help="How long the token holds, such as 1h.")] = None,
    as_json: Json = False,
) -> int:
    """Invite a site: prints the one command to run there (it holds a secret)."""
    answer = ask(lambda client: client.invite(name, region, ttl))
    if as_json:
        show_json(answer)
        return Exit.OK
    say(text_whole(answer.get("command") or answer.get("token")))
    note(f"run it at the site before {moment(answer.get('expires_at'), now())}; it works once")
    return Exit.OK


def text_whole(value: object) -> str:
    """A value to be copied by people: never cut, but free of control characters."""
    return "".join(c for c in str(value or "-") if c.isprintable())


@app.command()
def drain(
    cluster: ClusterName,
    deadline: Annotated[
        str | None, typer.Option(help="By when it is to be empty: 2h, or an RFC 3339 time.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Send a cluster no more work."""
    until = _instant(deadline) if deadline else None
    return _done(ask(lambda client: client.drain(cluster, until)), cluster, "draining", as_json)


def _instant(text_of_it: str) -> str:
    """The moment meant by `2h` from now or by an RFC 3339 time, as the latter; raises Failure."""
    try:
        if text_of_it[:1].isdigit() and "T" not in text_of_it:
            return format_utc(now().ms + parse_duration_s(text_of_it) * 1000)
        return format_utc(parse_rfc3339_ms(text_of_it))
    except InvalidQuantity as error:
        raise Failure(Exit.BAD_INPUT, f"--deadline: {error}") from None


@app.command()
def remove(
    cluster: ClusterName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> int:
    """Take a cluster out of the federation; its certificate is revoked."""
    if not yes:
        raise Failure(
            Exit.BAD_INPUT,
            f"{cluster} could come back only by a new invitation",
            f"if you mean it: tradewind clusters remove {cluster} --yes",
        )
    return _done(ask(lambda client: client.remove(cluster)), cluster, "removed", as_json)


def _done(answer: dict[str, Any], cluster: str, what: str, as_json: bool) -> int:
    if as_json:
        show_json({"name": cluster, **answer})
    else:
        say(f"{cluster} {text(answer.get('state')) if answer.get('state') else what}")
    return Exit.OK
