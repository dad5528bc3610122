"""The broker about itself, who you are, tenants, tokens and usage."""

from __future__ import annotations

from aiohttp import web

from broker.api.handlers.fleet import duration_s, instant_ms
from broker.api.handlers.freeze import freeze_view
from broker.api.handlers.jobs import may_act_for
from broker.api.problems import Problem, field_problem, not_found
from broker.api.routes import Call, answer
from broker.api.views import usd, utc
from broker.control.tenants import Tenants, decode_tenant, put_tenant
from broker.control.tokens import Grant, TokenError, create_token, decode_token, info, revoke_token
from broker.control.viewing import DEFAULT_TENANT
from broker.model.fleet import TenantPolicy
from broker.state import keys
from federation.ids import InvalidName, parse_tenant
from federation.units import format_duration

USAGE_DAYS_MS = 30 * 86_400_000
API_VERSION = "v1"


async def status(call: Call) -> web.Response:
    """GET /v1/status."""
    control = call.api.services.control
    leader = control.leader()
    told = control.status()
    if not call.viewer.operator and not _mine(call, told.get("oldest_wait")):
        told = {**told, "oldest_wait": None}
    told = {**told, "slipping": [s for s in told.get("slipping", ()) if _mine(call, s)]}
    day = await control.changes(call.viewer)
    return answer(
        200,
        {
            "leader": leader,
            "epoch": leader.get("epoch"),
            **told,
            "freeze": freeze_view(call) if call.viewer.operator else None,
            "last_24h": day,
        },
    )


def _mine(call: Call, oldest: object) -> bool:
    """Whether the job that waits longest may be named to this viewer."""
    if not isinstance(oldest, dict):
        return True
    job = call.api.services.projection.job(str(oldest.get("job")))
    return job is not None and call.viewer.may_see(job.tenant)


async def version(call: Call) -> web.Response:
    """GET /v1/version."""
    return answer(
        200,
        {"name": "tradewind", "version": call.api.services.settings.version, "api": API_VERSION},
    )


async def whoami(call: Call) -> web.Response:
    """GET /v1/whoami."""
    viewer = call.viewer
    return answer(
        200,
        {
            "subject": viewer.subject,
            "role": "operator" if viewer.operator else "user",
            "tenants": list(viewer.tenants),
            "home_tenant": viewer.home_tenant,
            "token": viewer.token_id,
        },
    )


async def usage(call: Call) -> web.Response:
    """GET /v1/usage."""
    query = call.query
    to_ms = instant_ms("to", query.to, 400) if query.to else call.now_ms + 1
    from_ms = instant_ms("from", query.from_, 400) if query.from_ else to_ms - USAGE_DAYS_MS
    if from_ms >= to_ms:
        raise field_problem(400, "bad_query", "from", "not before `to`", "swap them")
    tenants: tuple[str | None, ...]
    if query.tenant is not None:
        tenants = (may_act_for(call.viewer, query.tenant),)
    else:
        tenants = (None,) if call.viewer.operator else call.viewer.tenants
    totals = [
        total
        for tenant in tenants
        for total in await call.api.services.ledger.usage(tenant, from_ms, to_ms)
    ]
    rows = [
        {
            "tenant": total.tenant,
            "cluster": total.cluster,
            "pool": total.pool,
            "accelerator": total.accelerator,
            "attempts": total.attempts,
            "accelerator_h": total.accelerator_ms / 3_600_000,
            "cpu_h": total.cpu_ms / 3_600_000,
            "memory_gib_h": total.memory_mib_s / 1024 / 3600,
            "cost_usd": usd(total.cost_micro_usd),
        }
        for total in totals
    ]
    return answer(200, {"from_at": utc(from_ms), "to_at": utc(to_ms), "usage": rows})


# Tenants ------------------------------------------------------------------------------------------


def _tenant_view(call: Call, policy: TenantPolicy) -> dict[str, object]:
    control = call.api.services.control
    return {
        "name": policy.name,
        "weight": policy.weight,
        "quota_accelerators": policy.quota_accelerators,
        "cohort": policy.cohort,
        "borrow_accelerators": policy.borrow_accelerators,
        "held_accelerators": control.held_by(policy.name),
        "share": control.share_of(policy.name),
        "cluster_quota": dict(policy.cluster_quota),
        "default_max_runtime": format_duration(policy.default_max_runtime_s),
        "max_runtime": format_duration(policy.max_runtime_s),
    }


async def tenants(call: Call) -> web.Response:
    """GET /v1/tenants: all for operators, their own for users."""
    projection = call.api.services.projection
    known = {
        keys.last_part(kv.key): decode_tenant(kv.key, kv.value)
        for kv in projection.under(keys.TENANTS)
    }
    book = Tenants(projection.value)
    names = {DEFAULT_TENANT, *known} if call.viewer.operator else set(call.viewer.tenants)
    return answer(
        200,
        {"tenants": [_tenant_view(call, known.get(n) or book.policy(n)) for n in sorted(names)]},
    )


async def write_tenant(call: Call) -> web.Response:
    """PUT /v1/tenants/{tenant}."""
    body, name = call.body, call.params["tenant"]
    try:
        parse_tenant(name)
    except InvalidName as error:
        raise field_problem(422, "bad_body", "tenant", error.rule, "choose another") from None
    usual = TenantPolicy(name)
    most_s = duration_s("max_runtime", body.max_runtime) if body.max_runtime else None
    usual_s = (
        duration_s("default_max_runtime", body.default_max_runtime)
        if body.default_max_runtime
        else None
    )
    policy = TenantPolicy(
        name=name,
        weight=body.weight,
        quota_accelerators=body.quota_accelerators,
        cohort=body.cohort,
        borrow_accelerators=body.borrow_accelerators if body.cohort else None,
        cluster_quota=dict(body.cluster_quota),
        default_max_runtime_s=usual_s or min(usual.default_max_runtime_s, most_s or 1 << 60),
        max_runtime_s=most_s or max(usual.max_runtime_s, usual_s or 0),
    )
    if policy.default_max_runtime_s > policy.max_runtime_s:
        raise field_problem(
            422, "bad_body", "default_max_runtime", "longer than max_runtime", "shorten it"
        )
    if policy.cohort and policy.quota_accelerators is None:
        raise field_problem(
            422, "bad_body", "quota_accelerators", "a member of a cohort needs a quota",
            "write what is its own, 0 for one that only borrows",
        )  # fmt: skip
    if body.borrow_accelerators is not None and not policy.cohort:
        raise field_problem(
            422, "bad_body", "borrow_accelerators", "there is no cohort to borrow from",
            "name a cohort, or leave it out",
        )  # fmt: skip
    revision, put = await put_tenant(call.api.services.store, policy)
    call.api.services.projection.fold_own(revision, (put,))
    return answer(200, _tenant_view(call, policy))


# Tokens -------------------------------------------------------------------------------------------


async def tokens(call: Call) -> web.Response:
    """GET /v1/tokens: never their secrets."""
    rows = [
        info(decode_token(kv.value)) for kv in call.api.services.projection.under(keys.TOKENS)
    ]
    views = [
        {
            "id": row.id,
            "subject": row.subject,
            "tenants": list(row.tenants),
            "role": row.role,
            "created_at": utc(row.created_ms),
            "expires_at": utc(row.expires_ms),
            "revoked": row.revoked,
        }
        for row in rows
    ]
    return answer(200, {"tokens": views})


async def make_token(call: Call) -> web.Response:
    """POST /v1/tokens: the only time its text is shown."""
    body, services = call.body, call.api.services
    ttl_s = duration_s("ttl", body.ttl) if body.ttl else 0
    try:
        grant = Grant(body.subject, tuple(body.tenants), body.role, ttl_s)
    except (TokenError, InvalidName) as error:
        raise Problem(422, "bad_body", str(error)) from None
    text, token_id = await create_token(services.store, services.ids, services.clock, grant)
    return answer(201, {"id": token_id, "token": text})


async def revoke(call: Call) -> web.Response:
    """DELETE /v1/tokens/{token}."""
    token_id = call.params["token"]
    if not await revoke_token(call.api.services.store, token_id):
        raise not_found("token", token_id)
    return answer(200, {"id": token_id, "revoked": True})
