"""Routing policies as tables and lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cli.formatting import (
    NONE,
    Now,
    age,
    at,
    count,
    mapping,
    mappings,
    moment,
    number,
    text,
    usd,
)
from broker.cli.output import Column, Table
from broker.cli.whatif_views import place_words

Document = Mapping[str, Any]


def policy_table(found: Document, now: Now) -> Table:
    """One line per policy in force, in the order in which they are matched."""
    table = Table(
        (
            Column("policy"), Column("version", right=True), Column("priority", right=True),
            Column("governs", fold=True), Column("requires", fold=True), Column("spot"),
            Column("applied", right=True), Column("by"),
        ),
        empty="no policies; write one and: tradewind policy apply FILE",
    )  # fmt: skip
    for policy in mappings(found.get("policies")):
        old = age(policy.get("created_at"), now)
        table.rows.append((
            text(policy.get("name")), count(policy.get("version")),
            count(policy.get("priority")), governs(policy), _brief(policy),
            text(policy.get("spot")), old if old == NONE else f"{old} ago",
            text(policy.get("by")),
        ))  # fmt: skip
    return table


def governs(policy: Document) -> str:
    """Which jobs a policy governs, in words."""
    match = policy.get("match")
    if match is None:
        return "jobs that name it"
    conditions = [
        f"{name} {text(value)}"
        for name, value in mapping(match).items()
        if text(value) != NONE
    ]
    return ", ".join(conditions) or "every job"


def requirements(policy: Document) -> list[tuple[str, str]]:
    """(what, how much) of every limit and weight it sets."""
    need, weights = mapping(policy.get("require")), mapping(policy.get("weights"))
    rtt, delay = mapping(need.get("max_rtt")), text(need.get("max_start_delay"))
    price = usd(need.get("max_price_usd_per_accelerator_hour"))
    worth, far = usd(weights.get("value_of_time_usd_per_hour")), weights.get("latency_usd_per_ms")
    found = [
        ("regions", text(need.get("regions")), ""),
        ("price at most", price, " per accelerator hour"),
        ("round trip at most", text(rtt.get("ms")), f" ms to {text(rtt.get('to'))}"),
        ("start within", delay, ""),
        ("isolation", text(need.get("isolation")), " or stronger"),
        ("only clusters where", text(need.get("where")), ""),
        ("starts only", text(need.get("hours")), ""),
        ("an hour of waiting costs", worth, ""),
        ("a millisecond of distance costs", usd(far), ""),
    ]
    found += _preferences(policy)
    return [(what, limit + unit) for what, limit, unit in found if limit != NONE]


def _preferences(policy: Document) -> list[tuple[str, str, str]]:
    failover, defer = mapping(policy.get("failover")), mapping(policy.get("defer"))
    order = failover.get("order")
    places = " > ".join(map(text, order)) if isinstance(order, list) else NONE
    cheap = usd(defer.get("max_price_usd_per_accelerator_hour"))
    return [
        ("tier", text(policy.get("tier")), ""),
        ("tasks in one cluster at most", _percent(policy.get("spread")), ""),
        ("on spot at most", _percent(policy.get("spot_share")), " of its jobs' accelerators"),
        ("order of places", places, f", the next after {text(failover.get('after'))}"),
        ("starts wait for", cheap, f" per accelerator hour, {text(defer.get('up_to'))} at most"),
    ]


def _percent(value: object) -> str:
    share = number(value)
    return NONE if share is None else f"{100 * share:.4g} %"


def _brief(policy: Document) -> str:
    return "; ".join(f"{what} {limit}" for what, limit in requirements(policy)) or NONE


def policy_facts(policy: Document, now: Now) -> list[tuple[str, str]]:
    """Everything about one version."""
    state = "in force" if policy.get("in_force") is True else "not in force"
    restores = policy.get("restores")
    return [
        ("policy", f"{text(policy.get('name'))}@{text(policy.get('version'))} ({state})"),
        ("description", text(policy.get("description"))),
        ("governs", governs(policy)),
        ("priority", text(policy.get("priority"))),
        *requirements(policy),
        ("spot", text(policy.get("spot"))),
        ("writes labels", text(at(policy, "mutate", "labels"))),
        ("writes environment", text(at(policy, "mutate", "env"))),
        ("applied", f"{moment(policy.get('created_at'), now)} by {text(policy.get('by'))}"),
        ("restores", f"version {text(restores)}" if restores else NONE),
        ("why", text(policy.get("why"))),
    ]


def history_table(found: Document, now: Now) -> Table:
    """One line per version, newest first."""
    table = Table(
        (
            Column("version", right=True), Column("applied"), Column("by"),
            Column("restores", right=True), Column("in force"), Column("why", fold=True),
        )
    )  # fmt: skip
    for version in mappings(found.get("versions")):
        table.rows.append((
            count(version.get("version")), moment(version.get("created_at"), now),
            text(version.get("by")), text(version.get("restores")),
            "yes" if version.get("in_force") is True else NONE, text(version.get("why")),
        ))  # fmt: skip
    return table


# Trials -------------------------------------------------------------------------------------------


def trial_lines(trial: Document) -> list[str]:
    """What a policy would change, in a few lines."""
    tried = mapping(trial.get("policy"))
    label = f"{text(tried.get('name'))}@{text(tried.get('version'))}"
    replaced = tried.get("replaces")
    lines = [f"{label} (replaces version {text(replaced)})" if replaced else f"{label} (new)"]
    for key, title in (("queued", "queued"), ("recent", "running or ended in the last day")):
        lines.append(_figures(mapping(trial.get(key)), title))
    return lines


def _figures(figures: Document, title: str) -> str:
    line = f"{count(figures.get('jobs'))} {title}: {count(figures.get('affected'))} under it"
    if number(figures.get("placed_after")) is None:
        return f"{line}, nothing moves"
    line += f", {count(figures.get('moved'))} would go elsewhere"
    before, after = figures.get("placed_before"), figures.get("placed_after")
    if before != after:
        line += f", {count(after)} placed instead of {count(before)}"
    more = number(figures.get("difference_usd"))
    cost = f"{usd(figures.get('cost_usd_before'))} -> {usd(figures.get('cost_usd_after'))}"
    return f"{line}; {cost}" + (f" ({'+' if more > 0 else ''}{usd(more)})" if more else "")


def move_table(trial: Document) -> Table:
    """The jobs that would go elsewhere."""
    table = Table(
        (
            Column("job"), Column("name"), Column("state", styled=True), Column("tenant"),
            Column("without it", fold=True), Column("with it", fold=True),
            Column("difference", right=True), Column("why"),
        ),
        empty="no job would go elsewhere",
    )  # fmt: skip
    for move in mappings(trial.get("moves")):
        table.rows.append((
            text(move.get("job")), text(move.get("name")), text(move.get("state")),
            text(move.get("tenant")), _side(move, "before"), _side(move, "after"),
            usd(move.get("difference_usd")),
            "its rules" if move.get("affected") is True else "displaced",
        ))  # fmt: skip
    return table


def _side(move: Document, side: str) -> str:
    places = mappings(at(move, side, "places"))
    if not places:
        return f"waits: {text(at(move, side, 'waits'))}"
    return ", ".join(map(place_words, places))
