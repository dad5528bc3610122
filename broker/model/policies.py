"""Routing policies as values, and what they make of one job.

A policy is an operator's word on where jobs run and what that may cost. Limits of a policy and of
a job intersect: the stricter wins. Money is integer micro-USD, times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from federation.job_parts import ISOLATION_GRADES as ISOLATION_GRADES
from federation.jobs import JobSpec


@dataclass(frozen=True, slots=True)
class RttLimit:
    """At most `ms` milliseconds to the region `to`."""

    to: str
    ms: float


@dataclass(frozen=True, slots=True)
class Hours:
    """A window of the week: on these days (0 = Monday) it opens, in minutes of the day on the wall
    of `zone`; it closes on the next day where `until_minute` is not later."""

    days: tuple[int, ...]
    from_minute: int
    until_minute: int
    zone: str


@dataclass(frozen=True, slots=True)
class Match:
    """Which jobs a policy governs without being named; every condition given must hold, and an
    empty one holds for all. `accelerators` are canonical names, `CPU` for jobs without any; `when`
    is an expression over the job."""

    tenants: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    accelerators: tuple[str, ...] = ()
    when: str = ""


@dataclass(frozen=True, slots=True)
class Require:
    """Limits; None and empty are none. `where` is an expression over the cluster."""

    regions: tuple[str, ...] = ()
    max_price_micro_usd_per_accelerator_hour: int | None = None
    max_rtt: RttLimit | None = None
    max_start_delay_s: int | None = None
    isolation: str | None = None
    where: str = ""
    hours: Hours | None = None


@dataclass(frozen=True, slots=True)
class Mutate:
    """What is written into jobs as they are submitted: expressions over the job, by label and by
    variable of the environment."""

    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Weights:
    """What time and distance are worth; None leaves it to the job."""

    value_of_time_micro_usd_per_hour: int | None = None
    latency_micro_usd_per_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failover:
    """Clusters or regions in the order in which they are wanted. The next one, and after the last
    all others, is taken once a job has waited `after_s` more, or none of those before takes jobs.
    """

    order: tuple[str, ...]
    after_s: int


@dataclass(frozen=True, slots=True)
class Defer:
    """A start is put off while one more hour costs more than this, at most `up_to_s` after
    submission and never past the latest start that keeps the deadline."""

    max_price_micro_usd_per_accelerator_hour: int
    up_to_s: int


@dataclass(frozen=True, slots=True)
class Policy:
    """A named policy. Without `match` it governs only jobs that name it; of those that match a
    job the one of the highest `priority` governs it. `spot` None leaves it to the job. `tier` is
    the priority its jobs are given at submission; `spread` is the most of an array's tasks that one
    cluster may have at once, `spot_share` the most of the accelerators of all its jobs that may be
    on spot capacity, both as fractions."""

    name: str
    description: str = ""
    priority: int = 0
    match: Match | None = None
    require: Require = field(default_factory=Require)
    weights: Weights = field(default_factory=Weights)
    spot: bool | None = None
    mutate: Mutate = field(default_factory=Mutate)
    tier: int | None = None
    spread: float | None = None
    spot_share: float | None = None
    failover: Failover | None = None
    defer: Defer | None = None


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A policy as applied once. `version` counts from 1; `restores` is the version a rollback
    brought back (0 = none); `source` is the text as applied."""

    policy: Policy
    version: int
    created_ms: int = 0
    subject: str = ""
    why: str = ""
    restores: int = 0
    source: str = ""

    @property
    def label(self) -> str:
        """`name@version`, as people write it."""
        return f"{self.policy.name}@{self.version}"


def _no_version(name: str, version: int) -> PolicyVersion | None:
    return None


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies in force by name, and the way to older versions. `unreadable` maps a name to
    why this build cannot read it: nothing is placed past a rule nobody can read."""

    current: Mapping[str, PolicyVersion] = field(default_factory=dict)
    older: Callable[[str, int], PolicyVersion | None] = _no_version
    unreadable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A job and its policies cannot both be had: where, what, and what to do."""

    path: str
    value: str
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the policies make of one job.

    `spec` is the job with the limits of both sides (never stored, never sent), `policies` the
    labels of those that govern it, `origins` names for a key of the spec the policy whose limit
    is the stricter. `round_trips` are limits beside the spec's own `max_rtt`, to other regions.
    `wheres` are expressions over the cluster and `hours` windows of the week, each with the policy
    it is of; so are `failovers` and `defers`. `spread` and `spot_share` are the strictest
    fractions, the latter with the name of its policy. With `conflicts` it cannot be placed
    anywhere.
    """

    spec: JobSpec
    policies: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    round_trips: tuple[RttLimit, ...] = ()
    latency_usd_per_ms: float = 0.0
    conflicts: tuple[Conflict, ...] = ()
    wheres: tuple[tuple[str, str], ...] = ()
    hours: tuple[tuple[Hours, str], ...] = ()
    failovers: tuple[tuple[Failover, str], ...] = ()
    defers: tuple[tuple[Defer, str], ...] = ()
    spread: float | None = None
    spot_share: tuple[float, str] | None = None

    @property
    def by_age(self) -> bool:
        """Whether it says something else as a job waits longer."""
        return bool(self.failovers or self.defers)
