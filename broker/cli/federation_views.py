"""Clusters, prices, latencies and the state of the federation as tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from broker.cli.formatting import (
    NONE,
    Now,
    age,
    at,
    count,
    mapping,
    mappings,
    milliseconds,
    moment,
    number,
    seconds,
    short,
    size,
    taken,
    text,
    usd,
)
from broker.cli.output import Column, Table
from broker.cli.site_views import local_load, site_facts

Document = Mapping[str, Any]


def cluster_table(clusters: Iterable[Document], now: Now) -> Table:
    """One line per cluster."""
    table = Table(
        (
            Column("cluster"), Column("region"), Column("state", styled=True),
            Column("scheduler"), Column("accelerators free", fold=True),
            Column("running", right=True), Column("local load", fold=True),
            Column("report", right=True),
            Column("handshake", right=True), Column("certificate", right=True),
            Column("version"),
        ),
        empty="no clusters; invite one: tradewind clusters invite NAME --region REGION",
    )  # fmt: skip
    for cluster in clusters:
        expires = age(cluster.get("certificate_expires_at"), now)
        table.rows.append((
            text(cluster.get("name")), text(cluster.get("region")), cluster_state(cluster, now),
            text(cluster.get("scheduler")), _free(cluster), count(_running(cluster)),
            local_load(cluster), _report_age(cluster), taken(cluster.get("handshake_ms")),
            expires if expires == NONE or expires.startswith("in ") else f"expired {expires} ago",
            text(cluster.get("version")),
        ))  # fmt: skip
    return table


def _running(cluster: Document) -> object:
    running = cluster.get("running")
    return len(running) if isinstance(running, list) else running


def _report_age(cluster: Document) -> str:
    old = short(cluster.get("capacity_age_s"))
    return old if old == NONE else f"{old} old"


def cluster_state(cluster: Document, now: Now) -> str:
    """`silent for 3m`, or the state the broker gives."""
    since = age(cluster.get("silent_since_at"), now)
    if since != NONE:
        return f"silent for {since}"
    if cluster.get("connected") is False:
        stated = text(cluster.get("state"))
        return "silent" if stated in (NONE, "active", "ready") else stated
    site = text(cluster.get("site_state"))
    return text(cluster.get("state")) if site in (NONE, "open") else f"{site} by the site"


def is_silent(cluster: Document) -> bool:
    """Whether a cluster cannot be heard now."""
    return bool(cluster.get("silent_since_at")) or cluster.get("connected") is False


def _free(cluster: Document) -> str:
    parts = []
    for pool in mappings(cluster.get("pools")):
        model = text(pool.get("accelerator"))
        simulated = " (simulated)" if pool.get("simulated") is True else ""
        parts.append(f"{count(pool.get('free'))}/{count(pool.get('total'))} {model}{simulated}")
    return ", ".join(parts) or NONE


def pool_table(cluster: Document, now: Now) -> Table:
    """The pools of one cluster."""
    table = Table(
        (
            Column("pool"), Column("accelerator"), Column("free", right=True),
            Column("total", right=True), Column("price", right=True), Column("kind"),
            Column("as of", right=True), Column("note"),
        ),
        empty="no pools reported",
    )  # fmt: skip
    for pool in mappings(cluster.get("pools")):
        price = usd(pool.get("price_usd_per_accelerator_hour"))
        table.rows.append((
            text(pool.get("pool")), text(pool.get("accelerator")), count(pool.get("free")),
            count(pool.get("total")), price if price == NONE else f"{price}/h",
            text(pool.get("price_kind")), moment(pool.get("price_as_of_at"), now),
            text(pool.get("note")) if pool.get("note") else _of_pool(pool),
        ))  # fmt: skip
    return table


def _of_pool(pool: Document) -> str:
    """What else there is to say of a pool."""
    said = ["simulated"] if pool.get("simulated") is True else []
    said += [f"all in {pool['domain']}"] if pool.get("domain") else []
    features = [
        f"{text(one.get('name'))} x{count(one.get('nodes'))}"
        for one in mappings(pool.get("features"))
    ]
    said += [f"features {' '.join(features)}"] if features else []
    for extra in mappings(pool.get("extras")):
        said.append(
            f"{count(extra.get('free'))} of {count(extra.get('total'))} {text(extra.get('name'))}"
        )
    return ", ".join(said) or NONE


def cluster_facts(cluster: Document, now: Now) -> list[tuple[str, str]]:
    """What there is to say about one cluster, but its pools."""
    expires = cluster.get("certificate_expires_at")
    return [
        ("cluster", text(cluster.get("name"))),
        ("region", text(cluster.get("region"))),
        ("state", cluster_state(cluster, now)),
        ("scheduler", text(cluster.get("scheduler"))),
        ("isolation", text(cluster.get("isolation"))),
        ("report", _report_age(cluster)),
        ("running", count(_running(cluster))),
        ("local load", local_load(cluster)),
        ("handshake", taken(cluster.get("handshake_ms"))),
        ("cache", _cache(mapping(cluster.get("cache")))),
        ("certificate", f"until {moment(expires, now)}" if expires else NONE),
        ("agent", text(cluster.get("version"))),
        *site_facts(cluster, now),
    ]


def _cache(cache: Document) -> str:
    held, limit = size(cache.get("bytes")), size(cache.get("limit_bytes"))
    rate = size(cache.get("fetch_bytes_per_s"))
    if held == NONE:
        return NONE
    told = f"{count(cache.get('items'))} items, {held} of {limit}"
    return told if rate == NONE else f"{told}; fetches {rate}/s"


def price_table(prices: Iterable[Document], now: Now) -> Table:
    """Prices per pool, each with its source and age."""
    table = Table(
        (
            Column("cluster"), Column("region"), Column("pool"), Column("accelerator"),
            Column("kind"), Column("marginal", right=True), Column("then", right=True),
            Column("full", right=True), Column("as of"), Column("age", right=True),
            Column("source", fold=True), Column("flag", fold=True),
        ),
        empty="no prices known",
    )  # fmt: skip
    for price in prices:
        flagged = price.get("flagged")
        table.rows.append((
            text(price.get("cluster")), text(price.get("region")), text(price.get("pool")),
            text(price.get("accelerator")), text(price.get("kind")), _hourly(price, "marginal_usd"),
            _then(price, now), _hourly(price, "full_usd"), moment(price.get("as_of_at"), now),
            short(price.get("age_s")), text(price.get("source")),
            NONE if flagged in (False, None) else "flagged" if flagged is True else text(flagged),
        ))  # fmt: skip
    return table


def _then(price: Document, now: Now) -> str:
    """The next price known to come, and from when."""
    if price.get("next_at") is None:
        return NONE
    return f"{_hourly(price, 'next_usd')} from {moment(price.get('next_at'), now)}"


def _hourly(price: Document, key: str) -> str:
    amount = usd(price.get(key))
    return amount if amount == NONE else f"{amount}/h"


def latency_table(latency: Document) -> Table:
    """Round trips: rows from, columns to. `*` marks what was typed in, not measured."""
    names = latency.get("regions")
    regions = [text(name) for name in names] if isinstance(names, list) else []
    cells: dict[tuple[str, str], str] = {}
    for trip in mappings(latency.get("round_trips")):
        ends = (text(trip.get("from")), text(trip.get("to")))
        regions += [end for end in ends if end not in regions and end != NONE]
        shown = milliseconds(trip.get("rtt_ms"))
        cells[ends] = f"{shown} *" if trip.get("source") == "typed" and shown != NONE else shown
    columns = [Column("from"), *(Column(region, right=True) for region in regions)]
    table = Table(columns, empty="no regions known")
    for start in regions:
        row = [cells.get((start, end), NONE) for end in regions]
        table.rows.append((start, *row))
    return table


def latency_notes(latency: Document, now: Now) -> list[str]:
    """How old the measurements are, and what the marks mean."""
    trips = mappings(latency.get("round_trips"))
    lines = []
    measured = [trip.get("measured_at") for trip in trips if trip.get("source") == "measured"]
    ages = [shown for shown in (age(each, now) for each in measured) if shown != NONE]
    if ages:
        lines.append(f"measured by the agents' own connections, the first shown {ages[0]} ago")
    if any(trip.get("source") == "typed" for trip in trips):
        lines.append("* typed in by the operator, not measured")
    if any(number(trip.get("rtt_ms")) is None for trip in trips):
        lines.append("`-` is unknown: no job with max_rtt is placed over it")
    return lines


def status_facts(status: Document, now: Now) -> list[tuple[str, str]]:
    """The federation in a few lines."""
    cycle = mapping(status.get("cycle"))
    oldest = mapping(status.get("oldest_wait"))
    clusters = mapping(status.get("clusters"))
    silent = number(clusters.get("silent"))
    heard = f"{count(clusters.get('connected'))} connected"
    waits = NONE
    if oldest.get("job"):
        waits = f"{text(oldest.get('job'))} for {seconds(oldest.get('age_s'))}"
        reason = text(at(oldest, "reason", "text"))
        reason = text(oldest.get("reason")) if reason == NONE else reason
        waits += f": {reason}" if reason != NONE else ""
    return [
        ("leader", _leader(status)),
        ("clusters", f"{heard}, {count(silent)} silent" if silent else heard),
        ("queued", count(status.get("queued"))),
        ("running", count(status.get("running"))),
        ("longest wait", waits),
        ("late", _listed(status, "slipping", lambda job: _slip(job, now))),
        ("last cycle", _cycle(cycle, now)),
        *_freeze_facts(mapping(status.get("freeze"))),
        ("silent sites", _listed(status, "silent_sites", _silent_site)),
        ("certificates", _listed(status, "expiring", _expiring)),
        *last_day_facts(mapping(status.get("last_24h")), now),
    ]


def _freeze_facts(freeze: Document) -> list[tuple[str, str]]:
    """Nothing, unless what runs is frozen or something waits for an operator."""
    facts = []
    if freeze.get("frozen"):
        facts.append(("frozen", f"by {text(freeze.get('by'))}: nothing is stopped for others"))
    waits = mapping(freeze.get("proposal"))
    if waits:
        facts.append(("approval", proposal_line(waits)))
    return facts


def proposal_line(waits: Document) -> str:
    """What waits for an operator, and how it is approved."""
    if not waits:
        return NONE
    cycle = text(waits.get("cycle"))
    what = f"cycle {cycle} would stop {count(waits.get('attempts'))} attempts with "
    what += f"{count(waits.get('accelerators'))} of {count(waits.get('accelerators_in_use'))} "
    what += "accelerators in use"
    done = "approved" if waits.get("approved") else f"tradewind freeze approve {cycle}"
    return f"{what} ({done})"


def _slip(job: Document, now: Now) -> str:
    end, due = moment(job.get("expected_end_at"), now), moment(job.get("deadline_at"), now)
    return f"{text(job.get('job'))} ends {end}, due {due}"


def last_day_facts(day: Document, now: Now) -> list[tuple[str, str]]:
    """What changed in the last 24 hours; nothing where the broker does not tell."""
    if not day:
        return []
    jobs = mapping(day.get("jobs"))
    ended = ", ".join(f"{count(n)} {text(kind).replace('_', ' ')}" for kind, n in jobs.items())
    joined = [text(cluster.get("name")) for cluster in mappings(day.get("new_clusters"))]
    facts = [
        ("last 24 h", ended or ("no job ended" if "note" not in day else text(day.get("note")))),
        ("cost", usd(day.get("cost_usd"))),
        ("new clusters", ", ".join(joined) or NONE),
    ]
    alarms = mappings(day.get("alarms"))
    if alarms:
        last = alarms[0]
        said = f"{text(last.get('text'))} ({age(last.get('at'), now)} ago)"
        facts.append(("alarms", f"{len(alarms)}, the last: {said}"))
    return [(name, shown) for name, shown in facts if shown != NONE]


def _listed(status: Document, key: str, show: Callable[[Document], str]) -> str:
    return ", ".join(show(each) for each in mappings(status.get(key))) or NONE


def _silent_site(site: Document) -> str:
    since = seconds(site.get("for_s"))
    return text(site.get("cluster")) + (f" for {since}" if since != NONE else " (never heard)")


def _expiring(certificate: Document) -> str:
    left_s = number(certificate.get("in_s"))
    name = text(certificate.get("cluster"))
    if left_s is not None and left_s <= 0:
        return f"{name} has expired"
    return f"{name} expires in {seconds(left_s)}"


def _leader(status: Document) -> str:
    leader, epoch = status.get("leader"), count(status.get("epoch"))
    leader = text(leader.get("name") if isinstance(leader, Mapping) else leader)
    if leader == NONE:
        return "none: jobs are taken, but nothing is decided until one leads"
    return leader if epoch == NONE else f"{leader} (epoch {epoch})"


def _cycle(cycle: Document, now: Now) -> str:
    if not cycle:
        return NONE
    ended = next((cycle[key] for key in ("decided_at", "ended_at", "at") if cycle.get(key)), None)
    parts = [text(cycle.get("status"))]
    old = age(ended, now) if ended else short(cycle.get("age_s"))
    parts += [f"{old} ago"] if old != NONE else []
    gap = number(cycle.get("gap"))
    parts += [f"gap {gap:.2%}"] if gap is not None else []
    spent = seconds(cycle.get("cpu_s"))
    parts += [f"{spent} CPU"] if spent != NONE else []
    return ", ".join(part for part in parts if part != NONE) or NONE


def plain_table(rows: Iterable[Document], now: Now, empty: str) -> Table:
    """Objects of any shape: a column per plain field, named and formatted by its unit."""
    listed = list(rows)
    keys = list(dict.fromkeys(key for row in listed for key in row))
    table = Table(
        [Column(_title(key), right=_is_number(key), fold=True) for key in keys], empty=empty
    )
    for row in listed:
        table.rows.append([by_unit(key, row.get(key), now) for key in keys])
    return table


def _title(key: str) -> str:
    name = str(key)
    for unit in ("_at", "_usd", "_s", "_ms"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def _is_number(key: str) -> bool:
    return str(key).endswith(("_usd", "_s", "_ms", "_bytes", "_hours", "jobs", "attempts"))


def by_unit(key: str, value: object, now: Now) -> str:
    """A field's value formatted by the unit in its name."""
    if key.endswith("_usd"):
        return usd(value)
    if key.endswith("_at"):
        return moment(value, now)
    if key.endswith("_ms"):
        return milliseconds(value)
    if key.endswith("_s"):
        return seconds(value)
    return text(value)


def facts_by_unit(document: Document, now: Now) -> list[tuple[str, str]]:
    """Plain fields of an object as `name value` lines."""
    return [(_title(key), by_unit(str(key), value, now)) for key, value in document.items()]
