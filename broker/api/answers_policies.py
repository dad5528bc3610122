"""Answers about routing policies: see `answers`."""

from __future__ import annotations

from typing import Literal

from broker.api.answers import Open


class MatchView(Open):
    """Which jobs it governs without being named. `when` is null for users: it may name others."""

    tenants: list[str]
    kinds: list[str]
    labels: dict[str, str]
    accelerators: list[str]
    when: str | None


class RttLimitView(Open):
    """At most so many milliseconds to a region."""

    to: str
    ms: float


class RequireView(Open):
    """Limits; null and empty are none."""

    regions: list[str]
    max_price_usd_per_accelerator_hour: float | None
    max_rtt: RttLimitView | None
    max_start_delay: str | None
    isolation: str | None
    where: str | None
    hours: str | None


class MutateView(Open):
    """Expressions whose values are written into jobs as they are submitted."""

    labels: dict[str, str]
    env: dict[str, str]


class WeightsView(Open):
    """What time and distance are worth; null leaves it to the job."""

    value_of_time_usd_per_hour: float | None
    latency_usd_per_ms: float | None


class FailoverView(Open):
    """Clusters or regions in the order in which they are wanted, and after how long the next."""

    order: list[str]
    after: str


class DeferView(Open):
    """Starts wait for at most this price, at most so long."""

    max_price_usd_per_accelerator_hour: float
    up_to: str


class PolicyView(Open):
    """One version of a policy. `match` null: it governs only jobs that name it. `source` is null
    for users: it may name other tenants. `spread` and `spot_share` are fractions."""

    name: str
    version: int
    in_force: bool
    description: str
    priority: int
    match: MatchView | None
    require: RequireView
    weights: WeightsView
    spot: bool | None
    tier: int | None
    spread: float | None
    spot_share: float | None
    failover: FailoverView | None
    defer: DeferView | None
    mutate: MutateView | None
    created_at: str | None
    by: str
    why: str
    restores: int | None
    source: str | None


class WrittenPolicyView(PolicyView):
    """The version in force; `unchanged` when it was so before."""

    unchanged: bool


class UnreadableView(Open):
    """A policy this broker cannot read: it holds all jobs back until it is applied again."""

    name: str
    why: str


class PoliciesView(Open):
    """The policies in force, in the order in which they are matched."""

    policies: list[PolicyView]
    unreadable: list[UnreadableView]


class PolicyVersionView(Open):
    """One line of a policy's history."""

    version: int
    in_force: bool
    created_at: str | None
    by: str
    why: str
    restores: int | None


class HistoryView(Open):
    """Every version there was, newest first."""

    name: str
    versions: list[PolicyVersionView]


class TriedView(Open):
    """What was tried, and which version it would become and replace."""

    name: str
    version: int
    replaces: int | None


class TrialFiguresView(Open):
    """Totals; null where no job's rules would change."""

    jobs: int
    affected: int
    moved: int
    placed_before: int | None
    placed_after: int | None
    cost_usd_before: float | None
    cost_usd_after: float | None
    difference_usd: float | None


class PlaceView(Open):
    """So many copies in one pool: in its queue (`queued`), or put off to a start there in `start_h`
    hours."""

    cluster: str
    pool: str
    copies: int
    queued: bool = False
    start_h: float = 0.0


class SideView(Open):
    """Where a job goes, what that costs, and why some of it waits."""

    places: list[PlaceView]
    cost_usd: float | None
    waits: str | None


class MoveView(Open):
    """A job that would go elsewhere. `affected`: its own rules change; else it is displaced."""

    job: str
    name: str
    tenant: str
    state: Literal["queued", "running", "ended"]
    copies: int
    ran_in: str
    affected: bool
    policies_before: list[str]
    policies_after: list[str]
    before: SideView
    after: SideView
    difference_usd: float | None


class TrialView(Open):
    """What a policy would change; nothing is stored. `moves` holds at most 500 of each part."""

    policy: TriedView
    queued: TrialFiguresView
    recent: TrialFiguresView
    moves: list[MoveView]
    notes: list[str]
