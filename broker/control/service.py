"""What the control shell answers to the API: the fleet, logs, status, who leads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.act.gateway import Gateway, SiteSilent
from broker.control.explaining import Explainer
from broker.control.office import Office
from broker.control.policy_trial import PolicyTrial
from broker.control.sites import Sites
from broker.control.standing import Standing
from broker.control.viewing import LogRequest, LogSlice, RegionUnreachable, Viewer
from broker.control.waitlist import Reason
from broker.control.whatif import WhatIf, WhatIfAsk
from broker.feedback.ports import LogStore
from broker.model.fleet import Fleet
from broker.model.jobs import AttemptPhase, Job
from broker.model.policies import Ruling
from broker.state.projection import Projection
from federation.environment import Clock
from federation.jobs import JobSpec


@dataclass(frozen=True, slots=True)
class ControlService:
    """Reads for the API, on the replica that leads (others answer from etcd what they can)."""

    office: Office
    sites: Sites
    projection: Projection
    logs: LogStore
    gateway: Callable[[], Gateway]
    clock: Clock
    explainer: Explainer
    trial: PolicyTrial
    standing: Standing
    what_if: WhatIf

    def fleet(self) -> Fleet:
        """All clusters with their latest reports."""
        return self.sites.fleet()

    async def explain(self, job: Job, spec: JobSpec, viewer: Viewer) -> dict[str, Any]:
        """Why a job is where it is, or waits."""
        return await self.explainer.explain(job, spec, viewer)

    async def dry_run(self, spec: JobSpec, tenant: str, viewer: Viewer) -> dict[str, Any]:
        """What would be decided for this spec now; nothing is stored."""
        return await self.explainer.dry_run(spec, tenant, viewer)

    async def test_policy(self, source: str) -> dict[str, Any]:
        """What a policy would change; nothing is stored."""
        return await self.trial.test(source)

    async def whatif(self, ask: WhatIfAsk, viewer: Viewer) -> dict[str, Any]:
        """Today beside a changed world; nothing is stored. Raises UnknownTarget, InvalidPolicy."""
        return await self.what_if.answer(ask, viewer)

    def told(self, job: Job, ruling: Ruling) -> Reason:
        """Why jobs alike wait; `UNTOLD` where nobody here knows."""
        return self.office.told(job, ruling)

    def held_by(self, tenant: str) -> int:
        """Accelerators a tenant holds now."""
        return sum(
            attempt.accelerators
            for job in self.projection.jobs()
            if job.tenant == tenant
            for attempt in job.counting_attempts
        )

    def share_of(self, tenant: str) -> float | None:
        """A tenant's level over the mean of all, as of the last decision; None where this replica
        does not know."""
        term = self.office.term
        return term.admitting.ratios.get(tenant) if term else None

    # Logs -----------------------------------------------------------------------------------------

    async def read_log(self, job: Job, ask: LogRequest) -> LogSlice:
        """Bytes of a stream from `offset`: from our own store once complete, else from the site.

        Raises `RegionUnreachable`, `FeedbackUnavailable`.
        """
        uid, stream, offset, limit = ask.uid, ask.stream, ask.offset, ask.limit_bytes
        for kept in await self.logs.streams(uid):
            if kept.name == stream and (kept.complete or offset < kept.length_bytes):
                data = await self.logs.read(uid, stream, offset, limit)
                done = kept.complete and offset + len(data) >= kept.length_bytes
                total = kept.total_bytes if kept.complete else None
                return LogSlice(data, offset, total, done, truncated=kept.truncated)
        attempt = job.attempt(uid)
        if attempt is not None and attempt.phase.rank < AttemptPhase.RUNNING.rank:
            return LogSlice(b"", offset, None, waiting=f"{uid} is {attempt.phase.value}")
        try:
            part = await self.gateway().read_log(
                ask.cluster, uid, stream, offset, limit, wait_ms=ask.wait_ms
            )
        except LookupError:
            ended = attempt is not None and attempt.phase is AttemptPhase.ENDED
            return LogSlice(b"", offset, 0 if ended else None, complete=ended)
        except (SiteSilent, TimeoutError) as silent:
            raise RegionUnreachable(
                f"{ask.cluster} holds this log and is silent; it comes when the site is back"
            ) from silent
        end = part.offset + len(part.data)
        done = part.complete and end >= part.total_bytes
        return LogSlice(part.data, part.offset, part.total_bytes, done)

    # Status ---------------------------------------------------------------------------------------

    def leader(self) -> dict[str, Any]:
        """Who leads: {name, epoch, here}."""
        return self.standing.leader()

    def status(self) -> dict[str, Any]:
        """Figures of this broker and what an operator should look at."""
        return self.standing.status()

    async def changes(self, viewer: Viewer) -> dict[str, Any]:
        """What the last 24 hours brought this viewer."""
        return await self.standing.changes(viewer)
