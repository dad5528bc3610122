"""What `tradewind doctor` asks the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from broker.cli.checks_here import FAIL, OK, WARN, Check
from broker.cli.federation_views import is_silent
from broker.cli.formatting import Now, age, epoch_ms, mappings, short, text
from broker.client.client import Client
from broker.client.errors import ClientError, NotReachable, Refused
from broker.client.transport import Request

SKEW_S = 5.0
CERTIFICATE_LEFT_MS = 4 * 3_600_000  # of 24 h, renewed at two thirds: less means it was not


async def check_broker(client: Client, now: Now) -> AsyncIterator[Check]:
    """Reachable, ready, our clocks, our token, its clusters. Ends at the first broken link."""
    try:
        answer = await client.transport.send(Request("GET", "//healthz"))
    except Refused as refused:
        yield Check(FAIL, "broker", f"unwell: {refused.text}", "see its log")
        return
    except ClientError as error:
        yield Check(FAIL, "broker", error.text, error.remedy)
        return
    yield Check(OK, "broker", "reachable")
    skew = check_clock(answer.headers.get("Date", ""), now)
    if skew is not None:
        yield skew
    yield await _ready(client)
    token = await _token(client)
    yield token
    if token.level == OK:
        async for check in _federation(client, now):
            yield check


def check_clock(date: str, now: Now) -> Check | None:
    """Our clock against the Date of an answer, which has whole seconds."""
    try:
        theirs_s = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
    skew_s = now.ms / 1000 - theirs_s
    if -SKEW_S <= skew_s <= SKEW_S + 1:
        return Check(OK, "clock", "agrees with the broker's")
    side = "ahead of" if skew_s > 0 else "behind"
    return Check(
        WARN, "clock", f"{short(abs(skew_s))} {side} the broker's",
        "set it by NTP; certificates and deadlines go by the broker's clock",
    )  # fmt: skip


async def _ready(client: Client) -> Check:
    try:
        await client.transport.send(Request("GET", "//readyz"))
    except (Refused, NotReachable) as error:
        return Check(WARN, "ready", f"not now: {error.text}", "see `tradewind status`, or its log")
    except ClientError as error:
        return Check(WARN, "ready", error.text)
    return Check(OK, "ready", "takes jobs")


async def _token(client: Client) -> Check:
    try:
        who = await client.whoami()
    except Refused as refused:
        level = FAIL if refused.problem.status in (401, 403) else WARN
        return Check(level, "token", refused.text, refused.remedy)
    except ClientError as error:
        return Check(WARN, "token", error.text, error.remedy)
    name = text(who.get("subject"))
    return Check(OK, "token", f"valid for {name}" if name != "-" else "valid")


async def _federation(client: Client, now: Now) -> AsyncIterator[Check]:
    try:
        status = await client.status()
        clusters = await client.clusters()
    except ClientError as error:
        yield Check(WARN, "federation", error.text, error.remedy)
        return
    leader = status.get("leader")
    if not (leader.get("name") if isinstance(leader, Mapping) else leader):
        yield Check(FAIL, "leader", "none: nothing is decided", "see the brokers' logs and etcd")
    if not clusters:
        yield Check(WARN, "clusters", "none", "tradewind clusters invite NAME --region REGION")
    for check in check_clusters(clusters, now):
        yield check


def check_clusters(clusters: Iterable[Mapping[str, Any]], now: Now) -> list[Check]:
    """Who is silent, and whose certificate runs out."""
    listed = mappings(list(clusters))
    checks = []
    for cluster in listed:
        name = text(cluster.get("name"))
        if is_silent(cluster):
            since = age(cluster.get("silent_since_at"), now)
            checks.append(Check(
                WARN, "clusters", f"{name} is silent" + (f" for {since}" if since != "-" else ""),
                "at the site: tradewind-agent doctor",
            ))  # fmt: skip
        expires = epoch_ms(cluster.get("certificate_expires_at"))
        if expires is not None and expires - now.ms < CERTIFICATE_LEFT_MS:
            late = expires <= now.ms
            left = short(abs(expires - now.ms) / 1000)
            checks.append(Check(
                FAIL if late else WARN, "certificates",
                f"{name}'s expired {left} ago" if late else f"{name}'s ends in {left}",
                "at the site: tradewind-agent doctor (renewal goes on up to 30 days after)",
            ))  # fmt: skip
    if listed and not checks:
        checks.append(Check(OK, "clusters", f"{len(listed)} connected, certificates in order"))
    return checks
