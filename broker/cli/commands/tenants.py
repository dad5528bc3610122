"""`tradewind tenants`: who shares the federation, with what weight and quota."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from broker.cli.exits import Exit, Failure
from broker.cli.formatting import count, mappings, number, text
from broker.cli.options import Json, group
from broker.cli.output import Column, Table, say, show, show_facts, show_json
from broker.cli.session import ask
from broker.client.client import Client

app = group("Tenants: weights, quotas, cohorts (without a sub-command: list).")

Option = typer.Option
Name = Annotated[str, typer.Argument(metavar="TENANT")]
NONE = "none"
WRITTEN = (
    "weight",
    "quota_accelerators",
    "cohort",
    "borrow_accelerators",
    "cluster_quota",
    "default_max_runtime",
    "max_runtime",
)
"""What of a tenant is written; the rest is only told."""


@app.callback(invoke_without_command=True)
def tenants(context: typer.Context, as_json: Json = False) -> int:
    """Tenants: weights, quotas, cohorts (without a sub-command: list)."""
    if context.invoked_subcommand is None:
        return _list(as_json=as_json)
    return Exit.OK


@app.command("list")
def list_tenants(as_json: Json = False) -> int:
    """One line per tenant: weight, quota, what it holds, how near it is to its share."""
    return _list(as_json=as_json)


def _list(*, as_json: bool) -> int:
    answer = ask(lambda client: client.tenants())
    if as_json:
        show_json(answer)
        return Exit.OK
    columns = [
        Column("TENANT"),
        Column("WEIGHT", right=True),
        Column("HOLDS", right=True),
        Column("QUOTA", right=True),
        Column("COHORT"),
        Column("MAY BORROW", right=True),
        Column("OF ITS SHARE", right=True),
    ]
    rows = [_row(tenant) for tenant in mappings(answer.get("tenants"))]
    show(Table(columns, [*rows], "no tenants").without_blank_columns())
    return Exit.OK


def _row(tenant: Mapping[str, Any]) -> list[str]:
    in_cohort = bool(tenant.get("cohort"))
    return [
        text(tenant.get("name")),
        count(tenant.get("weight")),
        count(tenant.get("held_accelerators")),
        _limit(tenant.get("quota_accelerators")),
        text(tenant.get("cohort") or None),
        _limit(tenant.get("borrow_accelerators")) if in_cohort else "-",
        _share(tenant.get("share")),
    ]


def _limit(value: object) -> str:
    return NONE if value is None else count(value)


def _share(value: object) -> str:
    found = number(value)
    return "-" if found is None else f"{found:.2f}"


@app.command("show")
def show_tenant(tenant: Name, as_json: Json = False) -> int:
    """Everything about one tenant."""
    return _told(ask(lambda client: _one(client, tenant)), as_json=as_json)


@app.command("set")
def set_tenant(  # noqa: PLR0913 - one option for each thing a tenant has
    tenant: Name,
    weight: Annotated[int | None, Option(help="Share beside others of the same priority.")] = None,
    quota: Annotated[
        str | None, Option(help="Most accelerators it may hold at once, or `none`.")
    ] = None,
    cohort: Annotated[
        str | None, Option(help="With whom it lends and borrows, or `none`.")
    ] = None,
    borrow: Annotated[
        str | None, Option(help="Most it may borrow beyond its quota; `none`: no limit.")
    ] = None,
    cluster_quota: Annotated[
        list[str] | None, Option(help="CLUSTER=N, or CLUSTER=none; repeatable.")
    ] = None,
    max_runtime: Annotated[str | None, Option(help="Longest runtime, such as 7d.")] = None,
    default_max_runtime: Annotated[
        str | None, Option(help="Of jobs that say nothing, such as 12h.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Make a tenant, or change what is named; what is not named stays (for operators)."""
    changes: dict[str, Any] = {}
    if weight is not None:
        changes["weight"] = weight
    if quota is not None:
        changes["quota_accelerators"] = _number("--quota", quota)
    if cohort is not None:
        changes["cohort"] = "" if cohort == NONE else cohort
        if cohort == NONE:
            changes["borrow_accelerators"] = None
    if borrow is not None:
        changes["borrow_accelerators"] = _number("--borrow", borrow)
    for key, value in (("max_runtime", max_runtime), ("default_max_runtime", default_max_runtime)):
        if value is not None:
            changes[key] = value
    by_cluster = dict(_cluster_quota(item) for item in cluster_quota or ())
    if not (changes or by_cluster):
        raise Failure(
            Exit.BAD_INPUT, "nothing is to be changed", "name an option, such as --weight 2"
        )

    async def write(client: Client) -> dict[str, Any]:
        known = await _one(client, tenant, missing={})
        now_set = {key: known[key] for key in WRITTEN if known.get(key) is not None}
        quotas = {**now_set.get("cluster_quota", {}), **by_cluster}
        now_set["cluster_quota"] = {c: n for c, n in quotas.items() if n is not None}
        return await client.write_tenant(tenant, now_set | changes)

    return _told(ask(write), as_json=as_json)


async def _one(
    client: Client, name: str, missing: dict[str, Any] | None = None
) -> dict[str, Any]:
    for tenant in mappings((await client.tenants()).get("tenants")):
        if tenant.get("name") == name:
            return tenant
    if missing is None:
        raise Failure(Exit.NOT_FOUND, f"no tenant {name}", "tradewind tenants lists them")
    return missing


def _told(tenant: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        show_json(tenant)
        return Exit.OK
    quotas = tenant.get("cluster_quota")
    listed = quotas.items() if isinstance(quotas, dict) else ()
    show_facts(
        [
            ("tenant", text(tenant.get("name"))),
            ("weight", count(tenant.get("weight"))),
            ("holds", f"{count(tenant.get('held_accelerators'))} accelerators"),
            ("of its share", _share(tenant.get("share"))),
            ("quota", _limit(tenant.get("quota_accelerators"))),
            ("cohort", text(tenant.get("cohort") or None)),
            ("may borrow", _limit(tenant.get("borrow_accelerators")))
            if tenant.get("cohort")
            else ("may borrow", "-"),
            ("by cluster", ", ".join(f"{text(c)} {count(n)}" for c, n in listed) or "-"),
            ("longest runtime", text(tenant.get("max_runtime"))),
            ("usual limit", text(tenant.get("default_max_runtime"))),
        ]
    )
    say()
    return Exit.OK


def _number(option: str, value: str) -> int | None:
    """A whole number, None for `none`; raises Failure."""
    if value == NONE:
        return None
    if not (value.isascii() and value.isdigit()):
        raise Failure(Exit.BAD_INPUT, f"{option}: {value!r} is no whole number", "or write none")
    return int(value)


def _cluster_quota(item: str) -> tuple[str, int | None]:
    cluster, equals, value = item.partition("=")
    if not equals or not cluster:
        raise Failure(
            Exit.BAD_INPUT, f"--cluster-quota: {item!r} is not CLUSTER=N", "such as near=16"
        )
    return cluster, _number("--cluster-quota", value)
