"""What the control shell answers to the API: the fleet, logs, status, who leads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.act.gateway import Gateway, SiteSilent
from broker.control.books import copies_wanted
from broker.control.explaining import Explainer
from broker.control.office import Office
from broker.control.policy_trial import PolicyTrial
from broker.control.sites import Sites
from broker.control.viewing import LogRequest, LogSlice, RegionUnreachable, Viewer
from broker.feedback.ports import LogStore
from broker.model.fleet import Fleet
from broker.model.jobs import AttemptPhase, Job, JobPhase
from broker.state.projection import Projection
from federation.environment import Clock
from federation.jobs import JobSpec
from federation.units import format_duration, format_utc

CERTIFICATE_WARN_MS = 6 * 3600 * 1000


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
        record = self.office.leader_record()
        return {
            "name": record.name if record else "",
            "epoch": record.epoch if record else 0,
            "here": self.office.leading(),
        }

    def status(self) -> dict[str, Any]:
        """Figures of this broker and what an operator should look at."""
        now_ms = self.clock.now_ms()
        jobs = self.projection.jobs()
        fleet = self.fleet()
        silent = sorted(n for n, v in fleet.clusters.items() if not v.connected)
        waiting = [j for j in jobs if j.phase is JobPhase.QUEUED or copies_wanted(j, None) > 0]
        return {
            "leader": self.leader(),
            "cycle": self._cycle(now_ms),
            "queued": sum(j.phase is JobPhase.QUEUED for j in jobs),
            "held": sum(j.phase is JobPhase.HELD for j in jobs),
            "placed": sum(j.phase is JobPhase.PLACED for j in jobs),
            "running": sum(j.phase is JobPhase.RUNNING for j in jobs),
            "clusters": {"connected": len(fleet.clusters) - len(silent), "silent": len(silent)},
            "silent": silent,
            "oldest_wait": self._oldest(waiting, now_ms),
            "notes": self._notes(fleet, now_ms),
        }

    def _cycle(self, now_ms: int) -> dict[str, Any] | None:
        last = self.office.last_cycle
        if last is None:
            return None
        plan = last.decided.plan
        return {
            "cycle": last.cycle,
            "age_s": round((now_ms - last.started_ms) / 1000, 3),
            "wall_s": round(last.wall_s, 4),
            "cpu_s": round(last.decided.cpu_s, 4),
            "status": plan.status.value,
            "objective_usd": plan.objective_usd,
            "bound_usd": plan.bound_usd,
            "gap": plan.gap,
            "placed": len(last.applier.placed),
            "unplaced": len(plan.unplaced),
        }

    def _oldest(self, waiting: list[Job], now_ms: int) -> dict[str, Any] | None:
        if not waiting:
            return None
        oldest = min(waiting, key=lambda j: j.created_ms)
        return {
            "job": oldest.id,
            "age_s": round((now_ms - oldest.created_ms) / 1000, 3),
            "reason": oldest.reason_text or "not decided yet",
            "code": oldest.reason_code,
        }

    def _notes(self, fleet: Fleet, now_ms: int) -> list[str]:
        notes = []
        for name, view in sorted(fleet.clusters.items()):
            if not view.connected and view.silent_since_ms:
                ago = format_duration(max((now_ms - view.silent_since_ms) // 1000, 1))
                notes.append(f"{name} is silent since {ago}; its work is unknown, not gone")
            expires = view.identity.certificate_expires_ms
            if expires and expires - now_ms < CERTIFICATE_WARN_MS:
                notes.append(f"the certificate of {name} expires {format_utc(expires)}")
        notes.extend(text for _, text in self.office.alarms[-5:])
        return notes
