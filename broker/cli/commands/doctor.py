"""`tradewind doctor`: is this machine, and the way to the broker, in order?"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from broker.cli.checks_broker import check_broker
from broker.cli.checks_here import (
    FAIL,
    OK,
    WARN,
    Check,
    check_ca,
    check_configuration,
    check_etcd,
    check_extras,
    check_keys,
    check_python,
)
from broker.cli.exits import Exit
from broker.cli.options import Json
from broker.cli.output import Column, Table, say, show, show_json
from broker.cli.session import now, telling
from broker.client import ClientError, Connection, Patience, connect, find_connection


def doctor(as_json: Json = False) -> int:
    """Check this machine and the way to the broker; each line says ok, warn or fail.

    Exit code: 0 without a fail, else 1.
    """
    checks = _here()
    try:
        connection = find_connection(os.environ, Path.home())
    except ClientError as error:
        checks.append(Check(FAIL, "configuration", error.text, error.remedy))
    else:
        checks += check_configuration(connection)
        checks.append(check_ca(connection, now()))
        if checks[-1].level != FAIL:
            checks += asyncio.run(_there(connection))
    failed = any(check.level == FAIL for check in checks)
    if as_json:
        show_json({
            "ok": not failed,
            "checks": [
                {"level": c.level, "name": c.name, "text": c.text, "remedy": c.remedy or None}
                for c in checks
            ],
        })  # fmt: skip
    else:
        _show(checks)
    return Exit.JOB_FAILED if failed else Exit.OK


def _here() -> list[Check]:
    return [
        check_python(), check_extras(), check_etcd(), *check_keys(os.environ, Path.home()),
    ]  # fmt: skip


async def _there(connection: Connection) -> list[Check]:
    checks = []
    async with (
        telling("asking the broker"),
        connect(connection, Patience(total_s=4.0, connect_s=4.0, read_s=10.0)) as client,
    ):
        async for check in check_broker(client, now()):
            checks.append(check)
    return checks


def _show(checks: list[Check]) -> None:
    table = Table((
        Column("", styled=True), Column("check"), Column("found", fold=True),
        Column("what to do", fold=True),
    ))  # fmt: skip
    for check in checks:
        table.rows.append((check.level, check.name, check.text, check.remedy))
    show(table.without_blank_columns())
    counts = {level: sum(check.level == level for check in checks) for level in (OK, WARN, FAIL)}
    say()
    say(", ".join(f"{number} {level}" for level, number in counts.items() if number))
