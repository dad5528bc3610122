"""Answers about the fleet, the broker itself, tenants and sites that join: see `answers`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from broker.api.answers import Open


class LocalQueueView(Open):
    """Jobs at the site in front of one handed over now, and how long that would wait (null:
    nobody knows). `pending_max` 0: as many of the federation's may wait as like."""

    waiting: int
    waiting_accelerators: int
    start_p50_ms: int | None
    start_p90_ms: int | None
    pending_max: int


class ExtraView(Open):
    """Something else of a pool that is counted."""

    name: str
    total: int
    free: int


class FeatureView(Open):
    """A word the site has for nodes, which jobs may ask for, and how many nodes have it."""

    name: str
    nodes: int


class PoolView(Open):
    """Accelerators of one model and price in a cluster; null where nothing was reported. `note`
    says why a pool does not count, `domain` which rack or switch all its nodes share."""

    pool: str
    accelerator: str | None
    simulated: bool | None
    nodes: int
    total: int | None
    free: int | None
    extras: list[ExtraView]
    domain: str
    features: list[FeatureView]
    price_usd_per_accelerator_hour: float | None
    price_kind: str | None
    price_source: str | None
    price_as_of_at: str | None
    queue: LocalQueueView | None
    note: str


class CacheView(Open):
    """What a cluster has in its cache; null for a rate nobody measured."""

    items: int
    bytes: int
    limit_bytes: int
    fetch_bytes_per_s: int | None
    age_s: float | None


class NameRuleView(Open):
    """Patterns of names that are taken, and of names that are not; both empty: all are."""

    allow: list[str]
    deny: list[str]


class WindowView(Open):
    """A time in which nothing of the federation runs at a site."""

    from_at: str | None
    until_at: str | None
    reason: str


class SiteRulesView(Open):
    """What the site's own people allow; the site enforces it. `guest_share`: a fraction."""

    tenants: NameRuleView
    users: NameRuleView
    images: NameRuleView
    commands: NameRuleView
    pools: NameRuleView
    max_pending: int | None
    max_walltime_s: int | None
    guest_share: float
    banned: list[str]
    windows: list[WindowView]


class LocalLoadView(Open):
    """Jobs of a site's own users, and the accelerators they hold."""

    running: int
    waiting: int
    accelerators: int


class ClusterView(Open):
    """A cluster and the age of what is known of it. `site_state` is what its own people decided:
    open, draining, paused or blackout."""

    name: str
    region: str
    state: Literal["invited", "joined", "draining", "removed"]
    site_state: str | None
    site_reason: str
    site_rules: SiteRulesView | None
    scheduler: str
    isolation: str
    connected: bool
    silent_since_at: str | None
    capacity_age_s: float | None
    certificate_expires_at: str | None
    handshake_ms: float
    cache: CacheView | None
    pools: list[PoolView]
    local_load: LocalLoadView | None
    running: int
    version: str


class ClustersView(Open):
    """All clusters by name."""

    clusters: list[ClusterView]


class InvitationView(Open):
    """The only time the token is shown."""

    token: str
    command: str
    expires_at: str


class ClusterStateView(Open):
    """What was decided about a cluster."""

    name: str
    state: Literal["draining", "removed"]
    deadline_at: str | None


class PriceView(Open):
    """A price per accelerator hour, with age and source. `marginal_usd` holds now, until
    `next_at`; null where nothing else is known to come. `preemptions_per_hour` is what the site
    says. `flagged` says what is wrong with it."""

    cluster: str
    region: str
    pool: str
    accelerator: str | None
    kind: str
    marginal_usd: float
    next_usd: float | None
    next_at: str | None
    preemptions_per_hour: float | None
    full_usd: float
    as_of_at: str | None
    age_s: float | None
    source: str
    flagged: str | None


class PricesView(Open):
    """All prices."""

    prices: list[PriceView]


class RoundTripView(Open):
    """A round trip between regions; null = unknown."""

    start: str = Field(alias="from")
    end: str = Field(alias="to")
    rtt_ms: float | None
    measured_at: str | None
    source: Literal["measured", "typed", "unknown"]
    note: str | None


class DataRateView(Open):
    """How fast data came to a cluster, null where the last reading failed."""

    from_region: str
    to_region: str
    cluster: str
    target: str
    gbps: float | None
    at_least: bool
    readings: int
    measured_at: str | None
    age_s: int
    flagged: Literal["nothing came", "old"] | None


class LatencyView(Open):
    """Round trips between all regions, and how fast data comes."""

    regions: list[str]
    round_trips: list[RoundTripView]
    data_rates: list[DataRateView]


class StatusView(Open):
    """The federation in a few figures."""

    leader: dict[str, Any] | None
    epoch: int | None


class VersionView(Open):
    """What answers."""

    name: str
    version: str
    api: str


class WhoamiView(Open):
    """Who the token says you are."""

    subject: str
    role: Literal["user", "operator"]
    tenants: list[str]
    home_tenant: str
    token: str


class UsageRow(Open):
    """Use of one pool by one tenant."""

    tenant: str
    cluster: str
    pool: str
    accelerator: str
    attempts: int
    accelerator_h: float
    cpu_h: float
    memory_gib_h: float
    cost_usd: float


class UsageView(Open):
    """Use in a period."""

    from_at: str | None
    to_at: str | None
    usage: list[UsageRow]


class ProposalView(Open):
    """What a cycle would stop and may not without an operator."""

    cycle: str
    at: str | None
    attempts: int
    accelerators: int
    accelerators_in_use: int
    why: str
    approved: bool


class FreezeView(Open):
    """Whether anything that runs may be stopped for others, and what waits for a word."""

    frozen: bool
    by: str
    why: str
    at: str | None
    proposal: ProposalView | None


class TenantView(Open):
    """Quota and defaults; quota null = no limit. `borrow_accelerators` null = whatever the cohort
    has. `held_accelerators`: now; `share`: its level over the mean of all tenants, 1 = exactly its
    share, null where this replica does not know."""

    name: str
    weight: int
    quota_accelerators: int | None
    cohort: str
    borrow_accelerators: int | None
    held_accelerators: int
    share: float | None
    cluster_quota: dict[str, int]
    default_max_runtime: str
    max_runtime: str


class TenantsView(Open):
    """Tenants by name."""

    tenants: list[TenantView]


class DatasetView(Open):
    """Data known by name: the regions that have all of it, those it may be read in (empty: all)."""

    name: str
    bytes: int
    regions: list[str]
    residency: list[str]
    changed_at: str | None
    changed_by: str


class DatasetsView(Open):
    """Datasets by name."""

    datasets: list[DatasetView]


class LinkView(Open):
    """What data costs and takes between regions. `gbps` is what decisions count with, null where
    nobody knows; `source` and `as_of_at` are of it. `at_least`: the way may be faster."""

    from_region: str
    to_region: str
    egress_usd_per_gb: float
    gbps: float | None
    speed: Literal["measured", "stated", "seen", "unknown"]
    at_least: bool
    stated_gbps: float | None
    source: str
    as_of_at: str | None


class LinksView(Open):
    """Links by region; a way that is not among them is not taken."""

    links: list[LinkView]


class TokenView(Open):
    """A token without its secret."""

    id: str
    subject: str
    tenants: list[str]
    role: Literal["user", "operator"]
    created_at: str | None
    expires_at: str | None
    revoked: bool


class TokensView(Open):
    """All tokens."""

    tokens: list[TokenView]


class MadeTokenView(Open):
    """The only time a token is shown."""

    id: str
    token: str


class RevokedView(Open):
    """A token that opens nothing any more."""

    id: str
    revoked: bool


class CaView(Open):
    """The CA and what a join command pins of it."""

    ca_pem: str
    ca_hash: str
    ca_hashes: list[str]


class SignedView(Open):
    """A site's certificate and where to go with it."""

    certificate_pem: str
    ca_pem: str
    cluster: str
    region: str
    session_addresses: list[str]
    api_url: str


class VerdictView(Open):
    """Whether a certificate opens a session, and why not."""

    ok: bool
    code: str
    reason: str
