"""What the API answers, as models: they make the schemas of the OpenAPI document.

Handlers send plain mappings; that these fit the models is checked by tests, not at run time.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

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


class MeasuredStartView(Open):
    """How long a start took, in all and by part, and the bytes brought and found for it."""

    took_ms: int
    handshake_ms: int
    prepare_ms: int
    launch_ms: int
    fetched_bytes: int
    cached_bytes: int


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
    superseded_at: str | None
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
    queued: bool
    moves_to: str
    expected_start_at: str | None
    expected_start_delay_s: float
    expected_start_p90_s: float
    measured_start: MeasuredStartView | None
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
    admission: dict[str, Any] | None = None
    policies: list[str] = []
    starts: list[dict[str, Any]] = []
    prepared_in: str | None = None


class JobExplainView(ExplainView):
    """The same for a job that exists."""

    job: str
    phase: Phase
    moved: list[str] = []


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


class FaultView(Open):
    """One field: what is wrong, and what would be right; its place in the text of a policy."""

    path: str
    value: str
    problem: str
    remedy: str
    line: int | None = None
    column: int | None = None


class ProblemView(Open):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FaultView]
    request_id: str
