"""Routing policies: in force, their history, writing and trying them."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.api.problems import field_problem, not_found
from broker.api.routes import Call, answer
from broker.api.views import usd, utc
from broker.control.policy_book import (
    Change,
    NoSuchVersion,
    PolicyBook,
    Written,
    restore_policy,
    write_policy,
)
from broker.control.policy_hours import hours_text
from broker.control.policy_text import read_policy
from broker.control.viewing import Viewer
from broker.model.policies import Match, Policy, PolicyVersion, Require
from federation.units import format_duration

# Reading ------------------------------------------------------------------------------------------


async def policies(call: Call) -> web.Response:
    """GET /v1/policies: all for operators, for users those that can concern them."""
    found = _book(call).policies()
    concerning = [v for v in found.current.values() if _concerns(v, call.viewer)]
    concerning.sort(key=lambda v: (-v.policy.priority, v.policy.name))
    unreadable = [{"name": name, "why": why} for name, why in sorted(found.unreadable.items())]
    return answer(
        200,
        {
            "policies": [_view(version, call.viewer, in_force=True) for version in concerning],
            "unreadable": unreadable,
        },
    )


async def policy(call: Call) -> web.Response:
    """GET /v1/policies/{policy}."""
    name, book, wanted = call.params["policy"], _book(call), call.query.version
    current = book.policies().current.get(name)
    found = current if wanted is None else book.version(name, wanted)
    if found is None or not _concerns(found, call.viewer):
        raise not_found("policy", name if wanted is None else f"{name}@{wanted}")
    in_force = current is not None and current.version == found.version
    return answer(200, _view(found, call.viewer, in_force=in_force))


async def history(call: Call) -> web.Response:
    """GET /v1/policies/{policy}/history."""
    name, book = call.params["policy"], _book(call)
    current = book.policies().current.get(name)
    versions = [v for v in reversed(book.history(name)) if _concerns(v, call.viewer)]
    if not versions:
        raise not_found("policy", name)
    rows = [
        {
            "version": v.version,
            "in_force": current is not None and current.version == v.version,
            "created_at": utc(v.created_ms),
            "by": v.subject,
            "why": v.why,
            "restores": v.restores or None,
        }
        for v in versions
    ]
    return answer(200, {"name": name, "versions": rows})


# Writing ------------------------------------------------------------------------------------------


async def write(call: Call) -> web.Response:
    """PUT /v1/policies/{policy}."""
    name, services = call.params["policy"], call.api.services
    named = read_policy(call.body.source).name
    if named != name:
        raise field_problem(
            422, "invalid_policy", "name", f"the text names {named}, the path {name}",
            f"PUT it to /v1/policies/{named}", named,
        )  # fmt: skip
    change = _change(call, call.body.source, call.body.expect_version)
    written = await write_policy(services.store, change, services.projection.fold_own)
    return answer(200, _written(written, call.viewer))


async def rollback(call: Call) -> web.Response:
    """POST /v1/policies/{policy}/rollback: an old text as a new version."""
    name, services = call.params["policy"], call.api.services
    change = _change(call, "", call.body.expect_version)
    try:
        written = await restore_policy(
            services.store, name, call.body.to, change, services.projection.fold_own
        )
    except NoSuchVersion:
        raise not_found("policy", f"{name}@{call.body.to}") from None
    return answer(200, _written(written, call.viewer))


async def test(call: Call) -> web.Response:
    """POST /v1/policies/test: what it would change; nothing is stored."""
    return answer(200, await call.api.services.control.test_policy(call.body.source))


def _book(call: Call) -> PolicyBook:
    return call.api.submissions.specs.policies


def _change(call: Call, source: str, expected: int | None) -> Change:
    return Change(source, call.now_ms, call.viewer.subject, call.body.why, expected)


# Views --------------------------------------------------------------------------------------------


def _concerns(version: PolicyVersion, viewer: Viewer) -> bool:
    match = version.policy.match
    if viewer.operator or match is None or not match.tenants:
        return True
    return any(viewer.may_see(tenant) for tenant in match.tenants)


def _written(written: Written, viewer: Viewer) -> dict[str, Any]:
    view = _view(written.version, viewer, in_force=True)
    return {**view, "unchanged": written.unchanged}


def _view(version: PolicyVersion, viewer: Viewer, *, in_force: bool) -> dict[str, Any]:
    policy = version.policy
    weights = policy.weights
    return {
        "name": policy.name,
        "version": version.version,
        "in_force": in_force,
        "description": policy.description,
        "priority": policy.priority,
        "match": None if policy.match is None else _match(policy.match, viewer),
        "require": _require(policy.require),
        "weights": {
            "value_of_time_usd_per_hour": _usd(weights.value_of_time_micro_usd_per_hour),
            "latency_usd_per_ms": _usd(weights.latency_micro_usd_per_ms),
        },
        "spot": policy.spot,
        "tier": policy.tier,
        "spread": policy.spread,
        "spot_share": policy.spot_share,
        **_preferences(policy),
        "mutate": {"labels": dict(policy.mutate.labels), "env": dict(policy.mutate.env)}
        if viewer.operator
        else None,
        "created_at": utc(version.created_ms),
        "by": version.subject,
        "why": version.why,
        "restores": version.restores or None,
        "source": version.source if viewer.operator else None,
    }


def _preferences(policy: Policy) -> dict[str, Any]:
    failover, defer = policy.failover, policy.defer
    return {
        "failover": {
            "order": list(failover.order),
            "after": format_duration(failover.after_s),
        } if failover else None,
        "defer": {
            "max_price_usd_per_accelerator_hour": _usd(
                defer.max_price_micro_usd_per_accelerator_hour
            ),
            "up_to": format_duration(defer.up_to_s),
        } if defer else None,
    }  # fmt: skip


def _match(match: Match, viewer: Viewer) -> dict[str, Any]:
    return {
        "tenants": [tenant for tenant in match.tenants if viewer.may_see(tenant)],
        "kinds": list(match.kinds),
        "labels": dict(match.labels),
        "accelerators": list(match.accelerators),
        "when": (match.when or None) if viewer.operator else None,
    }


def _require(need: Require) -> dict[str, Any]:
    rtt, delay_s = need.max_rtt, need.max_start_delay_s
    return {
        "regions": list(need.regions),
        "max_price_usd_per_accelerator_hour": _usd(need.max_price_micro_usd_per_accelerator_hour),
        "max_rtt": {"to": rtt.to, "ms": rtt.ms} if rtt else None,
        "max_start_delay": format_duration(delay_s) if delay_s else None,
        "isolation": need.isolation,
        "where": need.where or None,
        "hours": hours_text(need.hours) if need.hours else None,
    }


def _usd(micro_usd: int | None) -> float | None:
    return None if micro_usd is None else usd(micro_usd)
