"""Everything the API stands on, named in one place: it builds nothing of this itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from broker.control.enrolment import Enrolment
from broker.control.observing import Observer
from broker.control.submission import Shell, Submissions
from broker.control.tokens import TokenBook
from broker.control.viewing import LogRequest, LogSlice, Viewer
from broker.control.waitlist import Reason
from broker.control.whatif import WhatIfAsk
from broker.feedback.decisions import DecisionStore
from broker.feedback.ports import BlobStore, Ledger
from broker.model.data import Links
from broker.model.fleet import Fleet
from broker.model.jobs import Job
from broker.model.policies import Ruling
from broker.state.group_commit import GroupCommitter
from broker.state.keyring import Keyring
from broker.state.projection import Projection
from broker.state.store import Store
from federation.environment import Clock, Ids
from federation.jobs import JobSpec


class Control(Protocol):
    """What the control shell answers: decisions, the fleet, logs. JSON where `dict` stands."""

    def fleet(self) -> Fleet:
        """All clusters with their latest reports."""
        ...

    async def explain(self, job: Job, spec: JobSpec, viewer: Viewer) -> dict[str, Any]:
        """Why a job that has not ended is where it is, or waits."""
        ...

    async def dry_run(self, spec: JobSpec, tenant: str, viewer: Viewer) -> dict[str, Any]:
        """What would be decided for this spec now; nothing is stored."""
        ...

    async def test_policy(self, source: str) -> dict[str, Any]:
        """What a policy would change; nothing is stored. Raises InvalidPolicy,
        FeedbackUnavailable."""
        ...

    async def whatif(self, ask: WhatIfAsk, viewer: Viewer) -> dict[str, Any]:
        """Today beside a changed world; nothing is stored. Raises UnknownTarget, InvalidPolicy."""
        ...

    def told(self, job: Job, ruling: Ruling) -> Reason:
        """Why jobs alike wait; `UNTOLD` where nobody here knows."""
        ...

    def held_by(self, tenant: str) -> int:
        """Accelerators a tenant holds now."""
        ...

    def share_of(self, tenant: str) -> float | None:
        """A tenant's level over the mean of all; None where this replica does not know."""
        ...

    async def read_log(self, job: Job, ask: LogRequest) -> LogSlice:
        """Bytes of a log, kept here or asked of the site. Raises RegionUnreachable,
        FeedbackUnavailable."""
        ...

    def status(self) -> dict[str, Any]:
        """Figures of this broker: cycle, queued, running, clusters, oldest_wait, notes."""
        ...

    async def changes(self, viewer: Viewer) -> dict[str, Any]:
        """What the last 24 hours brought: new_clusters, jobs by outcome, cost_usd, alarms."""
        ...

    def leader(self) -> dict[str, Any]:
        """Who leads: {name, epoch, here}."""
        ...


@dataclass(frozen=True, slots=True)
class TypedRoundTrip:
    """A round trip an operator wrote down, for pairs nobody measured."""

    rtt_ms: float
    source: str
    as_of_ms: int


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The API's slice of the settings."""

    version: str = "0.1.0"
    public_url: str = "https://127.0.0.1:7443"
    typed_round_trips: Mapping[tuple[str, str], TypedRoundTrip] = field(default_factory=dict)
    links: Links = field(default_factory=dict)
    price_age_max_s: int = 24 * 3600
    sse_keepalive_s: float = 15.0
    log_poll_ms: int = 10_000
    events_kept: int = 20_000
    streams_max: int = 1_000


@dataclass(frozen=True, slots=True)
class Services:
    """The API's whole world. `lanes` are group committers without a guard."""

    store: Store
    projection: Projection
    lanes: Sequence[GroupCommitter]
    ledger: Ledger
    blobs: BlobStore
    enrolment: Enrolment
    keyring: Keyring
    clock: Clock
    ids: Ids
    control: Control
    settings: ApiSettings = field(default_factory=ApiSettings)
    observer: Observer = field(default_factory=Observer)
    decisions: DecisionStore | None = None

    def submissions(self) -> Submissions:
        """The way jobs are taken on."""
        return Submissions(
            Shell(
                store=self.store,
                lanes=self.lanes,
                projection=self.projection,
                mac_keys=self.keyring,
                blobs=self.blobs,
                clock=self.clock,
                ids=self.ids,
                ended=self.ledger.job,
                told=self.control.told,
            )
        )

    def tokens(self) -> TokenBook:
        """The tokens as this replica sees them."""
        return TokenBook(self.projection.value)
