"""What requests may carry: query strings and bodies, each a strict model."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from federation.job_errors import show
from federation.jobs import MAX_PRIORITY, FieldError

NAME_PATTERN = r"^[a-z][a-z0-9-]{0,31}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
JOB_ID_PATTERN = r"^j[0-9abcdefghjkmnpqrstvwxyz]{16}$"
CYCLE_NAME_PATTERN = r"^[0-9]{1,12}\.[0-9]{1,12}$"
TOKEN_ID_PATTERN = r"^[a-z0-9]{1,32}$"
BATCH_MAX = 1_000
PEM_MAX = 16_384

_INTEGER = re.compile(r"-?[0-9]{1,15}", re.ASCII)


def _wire_integer(value: Any) -> Any:
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise PydanticCustomError("int_parsing", "not a whole number")
        return int(value)
    return value


def _wire_truth(value: Any) -> Any:
    if isinstance(value, str):
        if value not in ("true", "false"):
            raise PydanticCustomError("bool_parsing", "neither true nor false")
        return value == "true"
    return value


WireInt = Annotated[int, BeforeValidator(_wire_integer)]
WireTruth = Annotated[bool, BeforeValidator(_wire_truth)]
TenantText = Annotated[str, Field(pattern=NAME_PATTERN, description="A tenant.")]
ClusterText = Annotated[str, Field(pattern=NAME_PATTERN, description="A cluster.")]
RegionText = Annotated[str, Field(pattern=NAME_PATTERN, description="A region.")]
TargetText = Annotated[str, Field(min_length=1, max_length=128)]
JobText = Annotated[str, Field(pattern=JOB_ID_PATTERN, description="A job id.")]
Instant = Annotated[
    str,
    Field(
        min_length=20,
        max_length=40,
        pattern=r"^\d{4}-\d\d-\d\d[Tt ]",
        description="RFC 3339 with an offset, such as 2026-03-01T08:00:00Z.",
    ),
]
TtlText = Annotated[
    str, Field(min_length=2, max_length=20, description="A duration such as 30m, 24h or 7d.")
]
Why = Annotated[str, Field(max_length=400, description="Shown to whoever asks why.")]


class Strict(BaseModel):
    """No unknown keys, no coercion of types in bodies."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Query(BaseModel):
    """A query string: text only, so numbers are read from it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# Queries ------------------------------------------------------------------------------------------


class JobsQuery(Query):
    """Which jobs to list; all conditions given must hold."""

    tenant: TenantText | None = None
    phase: Literal["queued", "held", "placed", "running", "ended"] | None = None
    outcome: (
        Literal[
            "succeeded",
            "failed",
            "cancelled",
            "preempted",
            "lost",
            "refused",
            "timed_out",
            "out_of_memory",
        ]
        | None
    ) = None
    name: Annotated[str, Field(max_length=128, description="How the name begins.")] = ""
    label: Annotated[
        list[Annotated[str, Field(max_length=320, pattern=r"^[^=]+=")]],
        Field(max_length=16, description="key=value, may be repeated."),
    ] = []
    cluster: ClusterText | None = None
    limit: Annotated[WireInt, Field(ge=1, le=1000)] = 100
    cursor: Annotated[
        str, Field(max_length=64, description="next_cursor of the page before.")
    ] = ""


class LogsQuery(Query):
    """Which stream of which attempt, and from where."""

    stream: Annotated[
        str, Field(pattern=r"^(output|task-(0|[1-9][0-9]{0,9}))$", max_length=20)
    ] = "output"
    task: Annotated[WireInt, Field(ge=0, le=2**31 - 1)] | None = None
    attempt: (
        Annotated[
            WireInt, Field(ge=1, le=999_999_999, description="Its number; the latest if absent.")
        ]
        | None
    ) = None
    offset: Annotated[WireInt, Field(ge=0, le=2**53)] = 0
    limit: Annotated[WireInt, Field(ge=1, le=1 << 20)] = 1 << 20
    follow: WireTruth = False


class EventsQuery(Query):
    """From where, and of what."""

    since: Annotated[
        str,
        Field(pattern=r"^[0-9]{1,18}\.[0-9]{1,9}$", description="Id of the last event seen."),
    ] | None = None  # fmt: skip
    job: JobText | None = None
    tenant: TenantText | None = None


class UsageQuery(Query):
    """Whose usage in which period; the last 30 days if absent."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    tenant: TenantText | None = None
    from_: Annotated[Instant | None, Field(alias="from")] = None
    to: Instant | None = None


class TenantQuery(Query):
    """For which tenant; the token's own if absent."""

    tenant: TenantText | None = None


class PolicyQuery(Query):
    """Which version; the one in force if absent."""

    version: Annotated[WireInt, Field(ge=1, le=99_999_999)] | None = None


class CyclesQuery(Query):
    """How many stored decisions to list."""

    limit: Annotated[WireInt, Field(ge=1, le=1000)] = 50


class StatsQuery(Query):
    """Of how many days, today included."""

    days: Annotated[WireInt, Field(ge=1, le=30)] = 7


# Bodies -------------------------------------------------------------------------------------------


class BatchBody(Strict):
    """Up to 1,000 jobs: all are taken on, or none."""

    jobs: Annotated[list[Any], Field(min_length=1, max_length=BATCH_MAX)]


class WhyBody(Strict):
    """Why, in one line."""

    why: Why = ""


class PriorityBody(Strict):
    """The new priority; higher goes first."""

    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)]


class MissingBody(Strict):
    """Blobs to ask for."""

    sha256: Annotated[
        list[Annotated[str, Field(pattern=SHA256_PATTERN)]], Field(max_length=10_000)
    ]


class InviteBody(Strict):
    """A cluster to invite."""

    name: ClusterText
    region: RegionText
    ttl: TtlText = "24h"


class DrainBody(Strict):
    """By when a cluster is to be empty."""

    deadline: Instant | None = None


class EnrolBody(Strict):
    """An invitation and a certificate request for it."""

    token: Annotated[str, Field(min_length=1, max_length=256)]
    csr: Annotated[str, Field(min_length=1, max_length=PEM_MAX, description="PEM.")]


class RenewBody(Strict):
    """A certificate, a request for the next, and proof of holding the old key."""

    certificate: Annotated[str, Field(min_length=1, max_length=PEM_MAX, description="PEM.")]
    csr: Annotated[str, Field(min_length=1, max_length=PEM_MAX, description="PEM.")]
    proof: Annotated[str, Field(min_length=1, max_length=1024, description="Base64.")]


class SessionCheckBody(Strict):
    """A certificate whose session was refused."""

    certificate: Annotated[str, Field(min_length=1, max_length=PEM_MAX, description="PEM.")]


class TokenBody(Strict):
    """A token to make."""

    subject: Annotated[str, Field(min_length=1, max_length=128)]
    role: Literal["user", "operator"] = "user"
    tenants: Annotated[list[TenantText], Field(max_length=64)] = []
    ttl: TtlText | None = None


class TenantBody(Strict):
    """Quota and defaults of a tenant."""

    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    quota_accelerators: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    cohort: Annotated[str, Field(max_length=64, pattern=r"^([a-z][a-z0-9-]*)?$")] = ""
    borrow_accelerators: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    cluster_quota: Annotated[
        dict[ClusterText, Annotated[int, Field(ge=0, le=10_000_000)]], Field(max_length=256)
    ] = {}
    default_max_runtime: TtlText | None = None
    max_runtime: TtlText | None = None


class DatasetBody(Strict):
    """A dataset, whole."""

    size: Annotated[str, Field(max_length=32, description="With its unit, such as 1.5TiB.")]
    regions: Annotated[list[RegionText], Field(min_length=1, max_length=64)]
    residency: Annotated[list[RegionText], Field(max_length=64)] = []


class FreezeBody(Strict):
    """Whether anything that runs may be stopped for the sake of others."""

    frozen: bool
    why: Why = ""


class ApproveBody(Strict):
    """A cycle that waits for an operator."""

    cycle: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9]+[.][0-9]+$")]
    why: Why = ""


class PolicyBody(Strict):
    """A policy's YAML."""

    source: Annotated[str, Field(max_length=65_536, description="YAML, see docs/policies.md.")]
    why: Why = ""
    expect_version: (
        Annotated[
            int, Field(ge=0, le=99_999_999, description="Refused unless it is in force; 0 = new.")
        ]
        | None
    ) = None


class RollbackBody(Strict):
    """Which version's text to bring back."""

    to: Annotated[int, Field(ge=1, le=99_999_999)]
    why: Why = ""
    expect_version: Annotated[int, Field(ge=0, le=99_999_999)] | None = None


class PolicyTestBody(Strict):
    """A policy's YAML, to try."""

    source: Annotated[str, Field(max_length=65_536, description="YAML, see docs/policies.md.")]


class PriceChangeBody(Strict):
    """Another price for the pools of a pool, cluster, region or model; one of both figures."""

    target: TargetText
    usd: Annotated[float, Field(ge=0, le=1e6)] | None = None
    factor: Annotated[float, Field(ge=0, le=1e6)] | None = None


class QuotaChangeBody(Strict):
    """Another quota of a tenant, over all clusters or in one; null is no limit."""

    tenant: TenantText
    cluster: ClusterText | None = None
    accelerators: Annotated[int, Field(ge=0, le=10_000_000)] | None


class AddedJobBody(Strict):
    """A job that is added, so many times."""

    spec: Annotated[dict[str, Any], Field(description="A job, as for POST /v1/jobs.")]
    count: Annotated[int, Field(ge=1, le=1_000)] = 1


class WhatIfBody(Strict):
    """What is changed; clusters or regions that are drained take nothing new, those lost nothing at
    all."""

    drain: Annotated[list[TargetText], Field(max_length=256)] = []
    lose: Annotated[list[TargetText], Field(max_length=256)] = []
    prices: Annotated[list[PriceChangeBody], Field(max_length=256)] = []
    quotas: Annotated[list[QuotaChangeBody], Field(max_length=256)] = []
    policies: Annotated[
        list[Annotated[str, Field(max_length=65_536)]],
        Field(max_length=16, description="YAML, see docs/policies.md. For operators."),
    ] = []
    jobs: Annotated[list[AddedJobBody], Field(max_length=64)] = []


# What is wrong with them --------------------------------------------------------------------------

_ADVICE = (
    ("missing", "add it"),
    ("string_too", "mind its length"),
    ("string_pattern", "see its description in /v1/openapi.json"),
    ("string", "write text"),
    ("int", "write a whole number"),
    ("float", "write a number"),
    ("bool", "write true or false"),
    ("greater", "raise it"),
    ("less", "lower it"),
    ("too_long", "send fewer"),
    ("too_short", "send at least one"),
    ("list", "write a list"),
    ("dict", "write an object"),
    ("model", "write an object"),
)


def faults(error: ValidationError, model: type[BaseModel]) -> list[FieldError]:
    """What pydantic found, each with its path and a remedy."""
    return [_fault(detail, model) for detail in error.errors(include_url=False)[:50]]


def _fault(detail: ErrorDetails, model: type[BaseModel]) -> FieldError:
    path = ".".join(str(part) for part in detail["loc"] if part != "[key]")[:200]
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = sorted(field.alias or name for name, field in model.model_fields.items())
        remedy = f"known here: {', '.join(known) or 'nothing'}"
        return FieldError(path, "", f"unknown key {path}", remedy)
    value = "" if isinstance(detail["input"], dict | list) else show(detail["input"])
    if kind == "literal_error":
        expected = detail.get("ctx", {}).get("expected", "the listed words")
        return FieldError(path, value, "not one of the known words", f"use {expected}")
    remedy = next((text for prefix, text in _ADVICE if kind.startswith(prefix)), "correct it")
    return FieldError(path, value, detail["msg"], remedy)
