"""`tradewind whatif`: the queue as it is, beside the queue in a changed world."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from broker.cli.commands.submit import prepare
from broker.cli.exits import Exit, Failure
from broker.cli.job_options import JobOptions, read_job
from broker.cli.options import Json
from broker.cli.output import show_json
from broker.cli.session import ask, now
from broker.cli.whatif_options import read_price, read_quota, split_count
from broker.cli.whatif_views import show_worlds
from broker.client.decisions import what_if

Option = typer.Option


def whatif(
    drain: Annotated[
        list[str] | None, Option(help="A cluster or region that takes nothing new; repeatable.")
    ] = None,
    lose: Annotated[
        list[str] | None, Option(help="A cluster or region that is gone; repeatable.")
    ] = None,
    price: Annotated[
        list[str] | None,
        Option(help="TARGET=USD, or TARGET=x1.5; a pool, cluster, region or model; repeatable."),
    ] = None,
    quota: Annotated[
        list[str] | None,
        Option(help="TENANT=N or TENANT@CLUSTER=N accelerators, or =none; repeatable."),
    ] = None,
    policy: Annotated[
        list[Path] | None,
        Option(help="A policy that is put in force; repeatable (operators; with FILE: anybody)."),
    ] = None,
    add: Annotated[
        list[str] | None,
        Option(metavar="JOB.yaml[:N]", help="A job that is added N times; repeatable."),
    ] = None,
    problem: Annotated[
        str | None,
        Option(metavar="FILE[.gz]", help="Of a planning problem, instead of the live queue."),
    ] = None,
    budget_s: Annotated[float, Option(help="CPU seconds for each decision on FILE.")] = 5.0,
    as_json: Json = False,
) -> int:
    """What would change if the world were another: who moves, what it costs, who starts when.

    Decided twice on a snapshot, as it is and changed; nothing is stored.
    """
    changes: dict[str, Any] = {
        "drain": drain or [],
        "lose": lose or [],
        "prices": [read_price(text) for text in price or ()],
        "quotas": [read_quota(text) for text in quota or ()],
    }
    changes["policies"] = [_read(file) for file in policy or ()]
    if problem is not None:
        from broker.cli.whatif_file import whatif_of_file

        told = whatif_of_file(problem, changes, add or (), budget_s)
    else:
        changes["jobs"] = [_added(text) for text in add or ()]
        told = ask(lambda client: what_if(client, changes))
    if as_json:
        show_json(told)
        return Exit.OK
    show_worlds(told, now())
    return Exit.OK


def _added(text: str) -> dict[str, Any]:
    file, count = split_count(text)
    prepared = prepare(read_job(file, None, JobOptions()))
    spec = prepared.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"spec": spec, "count": count}


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Exit.BAD_INPUT, f"{file} cannot be read: {error}") from None
