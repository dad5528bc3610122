"""What the API answers, as models: they make the schemas of the OpenAPI document.

Handlers send plain mappings; that these fit the models is checked by tests, not at run time.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Phase = Literal["queued", "held", "placed", "running", "ended"]


class Open(BaseModel):
    """More keys may come with later versions."""

    model_config = ConfigDict(extra="allow")


class ReasonView(Open):
    """Why: a closed code, and the same in words."""

    code: str
    text: str


class OutcomeView(Open):
    """How something ended. `signal` is null where there was none."""

    kind: str
    exit_code: int | None
    signal: int | None
    code: str
    text: str


class ArrayView(Open):
    """How many tasks of an array are in each state."""

    tasks: int
    unstarted: int
    running: int
    succeeded: int
    failed: int
    cancelled: int


class OutputView(Open):
    """A result file, fetched as a blob."""

    path: str
    sha256: str
    size_bytes: int
    mode: int


class JobOutputView(OutputView):
    """A result file and where it comes from."""

    attempt: str
    task: int | None


class AttemptView(Open):
    """One try in one cluster. Resources are those of all its replicas and copies."""

    uid: str
    cluster: str
    region: str
    pool: str
    phase: Literal[
        "placed", "reserved", "preparing", "starting", "running", "releasing", "ended"
    ]
    outcome: OutcomeView | None
    placed_at: str | None
    reserved_at: str | None
    prepared_at: str | None
    started_at: str | None
    ended_at: str | None
    accelerator: str
    accelerators: int
    cpus: float
    memory_bytes: int
    price_usd_per_accelerator_hour: float
    price_source: str
    price_as_of_at: str | None
    expected_start_delay_s: float
    handshake_ms: float
    prepare_ms: float
    launch_ms: float
    replicas: int
    nodes: list[str]
    tasks: str
    width: int
    outputs: list[OutputView]


class JobView(Open):
    """A job. `spec` comes with a single job only."""

    id: str
    name: str
    tenant: str
    subject: str
    kind: str
    phase: Phase
    outcome: OutcomeView | None
    priority: int
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    reason: ReasonView | None
    array: ArrayView | None
    attempts: list[AttemptView]
    clusters: list[str]
    cost_usd: float
    labels: dict[str, str]


class WholeJobView(JobView):
    """A job with its canonical spec (null where it is nowhere any more)."""

    spec: dict[str, Any] | None


class SubmittedView(Open):
    """A job taken on: it is durable."""

    id: str
    job: JobView


class BatchView(Open):
    """Jobs taken on, ids in the order sent."""

    ids: list[str]


class JobsView(Open):
    """A page of jobs, newest first; `notes` names what could not be asked."""

    jobs: list[JobView]
    next_cursor: str | None
    notes: list[str]


class AskedView(Open):
    """An intent, durable; the site follows."""

    id: str
    state: Literal["cancelling", "held", "released", "reprioritised"]


class ExplainView(Open):
    """Why a job is where it is or waits, with all candidates and what each would cost."""

    summary: str
    chosen: dict[str, Any] | str | None
    candidates: list[dict[str, Any]]
    waiting: list[dict[str, Any]]
    smallest_change: dict[str, Any] | None
    decision: dict[str, Any] | None


class JobExplainView(ExplainView):
    """The same for a job that exists."""

    job: str
    phase: Phase


class OutputsView(Open):
    """Results that came back."""

    outputs: list[JobOutputView]


class BlobView(Open):
    """A stored blob."""

    sha256: str
    size_bytes: int


class MissingView(Open):
    """Blobs to upload."""

    missing: list[str]


class PoolView(Open):
    """Accelerators of one model and price in a cluster; null where nothing was reported."""

    pool: str
    accelerator: str | None
    simulated: bool | None
    nodes: int
    total: int | None
    free: int | None
    price_usd_per_accelerator_hour: float | None
    price_kind: str | None
    price_source: str | None
    price_as_of_at: str | None


class ClusterView(Open):
    """A cluster and the age of what is known of it."""

    name: str
    region: str
    state: Literal["invited", "joined", "draining", "removed"]
    scheduler: str
    isolation: str
    connected: bool
    silent_since_at: str | None
    capacity_age_s: float | None
    certificate_expires_at: str | None
    handshake_ms: float
    pools: list[PoolView]
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
    """A price per accelerator hour, with age and source. `flagged` says what is wrong with it."""

    cluster: str
    region: str
    pool: str
    accelerator: str | None
    kind: str
    marginal_usd: float
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


class LatencyView(Open):
    """Round trips between all regions."""

    regions: list[str]
    round_trips: list[RoundTripView]


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


class TenantView(Open):
    """Quota and defaults; quota null = no limit."""

    name: str
    weight: int
    quota_accelerators: int | None
    cluster_quota: dict[str, int]
    default_max_runtime: str
    max_runtime: str


class TenantsView(Open):
    """Tenants by name."""

    tenants: list[TenantView]


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


class FaultView(Open):
    """One field: what is wrong, and what would be right."""

    path: str
    value: str
    problem: str
    remedy: str


class ProblemView(Open):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FaultView]
    request_id: str
