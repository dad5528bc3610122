"""How the federation stands, for a person with little time: what leads, waits, is silent, runs
out, and what the last day brought."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from broker.control.books import copies_wanted
from broker.control.office import Office
from broker.control.sites import Sites
from broker.control.viewing import Viewer
from broker.feedback.alarms import alarm_days, alarm_subject
from broker.feedback.ports import FeedbackUnavailable, Ledger
from broker.model.fleet import ClusterView, Fleet
from broker.model.jobs import Job, JobPhase
from broker.state.projection import Projection
from federation.environment import Clock
from federation.units import format_duration, format_utc

CERTIFICATE_WARN_MS = 6 * 3600 * 1000
"""An agent's certificate lives a day and is renewed after two thirds: less left means that
renewing fails."""
DAY_MS = 24 * 3600 * 1000
ALARMS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Standing:
    """Answers from this replica's memory; the last day from the ledger."""

    office: Office
    sites: Sites
    projection: Projection
    ledger: Ledger
    clock: Clock

    def status(self) -> dict[str, Any]:
        """Figures of this broker and what an operator should look at."""
        now_ms = self.clock.now_ms()
        jobs = self.projection.jobs()
        phases = Counter(job.phase for job in jobs)
        fleet = self.sites.fleet()
        silent = {n: v for n, v in sorted(fleet.clusters.items()) if not v.connected}
        return {
            "leader": self.leader(),
            "cycle": self._cycle(now_ms),
            "queued": phases[JobPhase.QUEUED],
            "held": phases[JobPhase.HELD],
            "placed": phases[JobPhase.PLACED],
            "running": phases[JobPhase.RUNNING],
            "clusters": {"connected": len(fleet.clusters) - len(silent), "silent": len(silent)},
            "silent": list(silent),
            "silent_sites": [_silence(name, view, now_ms) for name, view in silent.items()],
            "expiring": [_expiry(n, v, now_ms) for n, v in expiring(fleet, now_ms)],
            "slipping": self._slipping(),
            "oldest_wait": self._oldest(self._waiting(jobs), now_ms),
            "notes": self._notes(fleet, now_ms),
        }

    def leader(self) -> dict[str, Any]:
        """Who leads: {name, epoch, here}."""
        record = self.office.leader_record()
        return {
            "name": record.name if record else "",
            "epoch": record.epoch if record else 0,
            "here": self.office.leading(),
        }

    def ledger_lag_ms(self) -> int:
        """How far the ledger is behind what this leader decided."""
        term = self.office.term
        return term.closer.ledger_lag_ms() if term else 0

    def _waiting(self, jobs: Iterable[Job]) -> list[Job]:
        """Jobs that could start (more of) now. Only the leader's books know how much of an array
        is left."""
        term = self.office.term
        if term is None:
            return [job for job in jobs if job.phase is JobPhase.QUEUED]
        return [job for job in term.books.queued() if copies_wanted(job, None) > 0]

    def _slipping(self) -> list[dict[str, Any]]:
        """Jobs that are expected to end after their deadlines, the earliest deadline first."""
        term = self.office.term
        slips = term.deadlines.slipping.values() if term else ()
        return [
            {
                "job": slip.job,
                "expected_end_at": format_utc(slip.end_ms),
                "deadline_at": format_utc(slip.deadline_ms),
            }
            for slip in sorted(slips, key=lambda slip: (slip.deadline_ms, slip.job))
        ]

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
            "unplaced": last.unplaced,
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
        for late, view in expiring(fleet, now_ms):
            at = format_utc(view.identity.certificate_expires_ms)
            notes.append(f"the certificate of {late} expires {at}")
        notes.extend(text for _, text in self.office.alarms[-5:])
        return notes

    # The last day ---------------------------------------------------------------------------------

    async def changes(self, viewer: Viewer) -> dict[str, Any]:
        """What the last 24 hours brought this viewer: clusters that joined, ended jobs by
        outcome, cost; for operators alarms. A ledger that does not answer leaves its part None."""
        to_ms = self.clock.now_ms() + 1
        from_ms = to_ms - DAY_MS
        changed: dict[str, Any] = {
            "from_at": format_utc(from_ms),
            "to_at": format_utc(to_ms),
            "new_clusters": self._joined(from_ms),
            "jobs": None,
            "cost_usd": None,
            "alarms": None,
        }
        try:
            changed |= await self._ended(viewer, from_ms, to_ms)
            if viewer.operator:
                changed["alarms"] = await self._alarms(from_ms, to_ms)
        except FeedbackUnavailable as error:
            changed["note"] = f"the ledger does not answer: {error}"
        return changed

    def _joined(self, from_ms: int) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "region": view.identity.region,
                "joined_at": format_utc(view.identity.joined_ms),
            }
            for name, view in sorted(self.sites.fleet().clusters.items())
            if view.identity.joined_ms >= from_ms
        ]

    async def _ended(self, viewer: Viewer, from_ms: int, to_ms: int) -> dict[str, Any]:
        tenants: tuple[str | None, ...] = (None,) if viewer.operator else viewer.tenants
        jobs: Counter[str] = Counter()
        cost_micro_usd = 0
        for tenant in tenants:
            for total in await self.ledger.outcomes(tenant, from_ms, to_ms):
                jobs[total.outcome] += total.jobs
            for used in await self.ledger.usage(tenant, from_ms, to_ms):
                cost_micro_usd += used.cost_micro_usd
        return {"jobs": dict(sorted(jobs.items())), "cost_usd": cost_micro_usd / 1e6}

    async def _alarms(self, from_ms: int, to_ms: int) -> list[dict[str, Any]]:
        """Newest first; those of this replica also before the ledger has them."""
        found = {alarm for alarm in self.office.alarms if alarm[0] >= from_ms}
        for day in alarm_days(from_ms, to_ms):
            for entry in await self.ledger.audit(alarm_subject(day)):
                if entry.at_ms >= from_ms:
                    found.add((entry.at_ms, entry.why))
        newest = sorted(found, reverse=True)[:ALARMS_SHOWN]
        return [{"at": format_utc(at_ms), "text": text} for at_ms, text in newest]


def expiring(fleet: Fleet, now_ms: int) -> list[tuple[str, ClusterView]]:
    """Clusters whose certificate should have been renewed by now."""
    return [
        (name, view)
        for name, view in sorted(fleet.clusters.items())
        if (expires_ms := view.identity.certificate_expires_ms)
        and expires_ms - now_ms < CERTIFICATE_WARN_MS
    ]


def _silence(name: str, view: ClusterView, now_ms: int) -> dict[str, Any]:
    since_ms = view.silent_since_ms
    return {
        "cluster": name,
        "state": view.identity.state.value,
        "since_at": format_utc(since_ms) if since_ms else None,
        "for_s": round((now_ms - since_ms) / 1000, 1) if since_ms else None,
    }


def _expiry(name: str, view: ClusterView, now_ms: int) -> dict[str, Any]:
    expires_ms = view.identity.certificate_expires_ms
    return {
        "cluster": name,
        "expires_at": format_utc(expires_ms),
        "in_s": round((expires_ms - now_ms) / 1000),
    }
