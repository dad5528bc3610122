"""`tradewind datasets`: data known by name, where it lies, where it may be read."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.exits import Exit
from broker.cli.formatting import gbits, mappings, moment, text, usd
from broker.cli.formatting import size as size_of
from broker.cli.options import Json, group
from broker.cli.output import Column, Table, say, show, show_json
from broker.cli.session import ask, now

app = group("Datasets: their sizes and places (without a sub-command: list).")

Name = Annotated[str, typer.Argument(metavar="DATASET")]
Regions = typer.Option(metavar="REGION", help="A region that has all of it; repeatable.")


@app.callback(invoke_without_command=True)
def datasets(context: typer.Context, as_json: Json = False) -> int:
    """Datasets: their sizes and places (without a sub-command: list)."""
    if context.invoked_subcommand is None:
        return _list(as_json=as_json)
    return Exit.OK


@app.command("list")
def list_datasets(as_json: Json = False) -> int:
    """One line per dataset."""
    return _list(as_json=as_json)


def _list(*, as_json: bool) -> int:
    answer = ask(lambda client: client.datasets())
    if as_json:
        show_json(answer)
        return Exit.OK
    columns = [
        Column("DATASET"),
        Column("SIZE", right=True),
        Column("LIES IN"),
        Column("MAY BE READ IN"),
        Column("CHANGED"),
        Column("BY"),
    ]
    rows = [
        [
            text(each.get("name")),
            size_of(each.get("bytes")),
            ", ".join(map(str, each.get("regions") or ())),
            ", ".join(map(str, each.get("residency") or ())) or "everywhere",
            moment(each.get("changed_at"), now()),
            text(each.get("changed_by")),
        ]
        for each in mappings(answer.get("datasets"))
    ]
    show(Table(columns, [*rows], "no datasets"))
    return Exit.OK


@app.command("links")
def list_links(as_json: Json = False) -> int:
    """What data costs and takes between regions; a way that is not listed is not taken."""
    answer = ask(lambda client: client.links())
    if as_json:
        show_json(answer)
        return Exit.OK
    columns = [
        Column("FROM"),
        Column("TO"),
        Column("EGRESS", right=True),
        Column("SPEED", right=True),
        Column("KNOWN BY"),
        Column("AS OF"),
        Column("SOURCE"),
    ]
    rows = [
        [
            text(link.get("from_region")),
            text(link.get("to_region")),
            f"{usd(link.get('egress_usd_per_gb'))}/GB",
            gbits(link),
            text(link.get("speed")),
            moment(link.get("as_of_at"), now()),
            text(link.get("source")),
        ]
        for link in mappings(answer.get("links"))
    ]
    show(Table(columns, [*rows], "no links: data stays in its region"))
    return Exit.OK


@app.command("set")
def set_dataset(
    dataset: Name,
    size: Annotated[str, typer.Option(help="How large it is, such as 1.5TiB.")],
    region: Annotated[list[str], Regions],
    residency: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGION", help="A region it may be read in; repeatable. Default: everywhere."
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Write a dataset whole (for operators)."""
    told = ask(lambda client: client.write_dataset(dataset, size, region, residency or ()))
    if as_json:
        show_json(told)
    else:
        say(f"dataset {dataset}: {size} in {', '.join(region)}")
    return Exit.OK


@app.command("remove")
def remove_dataset(dataset: Name, as_json: Json = False) -> int:
    """Forget a dataset (for operators); jobs that need it then wait."""
    told = ask(lambda client: client.remove_dataset(dataset))
    if as_json:
        show_json(told)
    else:
        say(f"dataset {dataset} is forgotten")
    return Exit.OK
