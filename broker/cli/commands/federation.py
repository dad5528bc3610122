"""What is known of the federation: status, prices, latency, usage, versions."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer

from broker.cli.data_views import data_rate_table
from broker.cli.exits import Exit, note
from broker.cli.federation_views import (
    facts_by_unit,
    latency_notes,
    latency_table,
    plain_table,
    price_table,
    status_facts,
)
from broker.cli.formatting import mappings, text
from broker.cli.options import Json
from broker.cli.output import say, show, show_facts, show_json
from broker.cli.session import ask, now
from broker.client import ClientError

Option = typer.Option


def status(as_json: Json = False) -> int:
    """The federation in a few lines: who leads, what waits, what runs, who is silent."""
    answer = ask(lambda client: client.status())
    if as_json:
        show_json(answer)
        return Exit.OK
    show_facts(status_facts(answer, now()))
    notes = answer.get("notes")
    for line in notes if isinstance(notes, list) else []:
        note(f"note: {text(line)}")
    return Exit.OK


def prices(
    accelerator: Annotated[str | None, Option(help="Only this model.")] = None,
    region: Annotated[str | None, Option(help="Only in this region.")] = None,
    as_json: Json = False,
) -> int:
    """Prices per pool: what one more hour costs (marginal) and in full, with source and age."""
    found = [
        price
        for price in ask(lambda client: client.prices())
        if (accelerator is None or price.get("accelerator") == accelerator)
        and (region is None or price.get("region") == region)
    ]
    if as_json:
        show_json({"prices": found})
    else:
        show(price_table(found, now()).without_blank_columns())
    return Exit.OK


def latency(as_json: Json = False) -> int:
    """Round trips between regions: measured, typed in by the operator, or unknown."""
    answer = ask(lambda client: client.latency())
    if as_json:
        show_json(answer)
        return Exit.OK
    show(latency_table(answer))
    rates = data_rate_table(answer)
    if rates.rows:
        say("")
        show(rates)
    for line in latency_notes(answer, now()):
        note(line)
    return Exit.OK


def usage(
    tenant: Annotated[str | None, Option(help="Only this tenant's.")] = None,
    start: Annotated[str | None, Option("--from", help="From this time on (RFC 3339).")] = None,
    end: Annotated[str | None, Option("--to", help="Up to this time (RFC 3339).")] = None,
    as_json: Json = False,
) -> int:
    """What was used and paid, by tenant and cluster."""
    answer = ask(lambda client: client.usage(tenant=tenant, from_=start, to=end))
    return _show_any(answer, "nothing was used in that time", as_json=as_json)


def whoami(as_json: Json = False) -> int:
    """Who your token says you are, and what it allows."""
    answer = ask(lambda client: client.whoami())
    return _show_any(answer, "nobody", as_json=as_json)


def _show_any(answer: dict[str, Any], empty: str, *, as_json: bool) -> int:
    if as_json:
        show_json(answer)
        return Exit.OK
    lists = [value for value in answer.values() if mappings(value)]
    has_list = any(isinstance(value, list) for value in answer.values())
    plain = {key: value for key, value in answer.items() if not isinstance(value, list | dict)}
    if plain:
        show_facts(facts_by_unit(plain if has_list else answer, now()))
    for rows in lists:
        if plain:
            say()
        show(plain_table(mappings(rows), now(), empty))
    if not lists and (has_list or not plain):
        say(empty)
    return Exit.OK


def own_version() -> str:
    """The version of this installation, or `unknown` when it is not installed."""
    try:
        return installed_version("tradewind")
    except PackageNotFoundError:
        return "unknown"


def version(as_json: Json = False) -> int:
    """Versions here and at the broker (which need not be reachable)."""
    there: dict[str, Any] | None = None
    silent = ""
    try:
        there = ask(lambda client: client.version())
    except ClientError as error:
        silent = error.text
    if as_json:
        show_json({"client": own_version(), "broker": there, "broker_error": silent or None})
        return Exit.OK
    say(f"tradewind {own_version()}")
    if there is not None:
        plain = {key: value for key, value in there.items() if not isinstance(value, dict | list)}
        said, _ = plain.pop("version", None), plain.pop("name", None)
        rest = f" ({text(plain)})" if plain else ""
        say(f"broker {text(said)}{rest}")
    else:
        note(f"broker: {silent}")
    return Exit.OK
