"""The figures of a run. What cannot be computed honestly is left out (docs/simulation.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from broker.feedback.ports import JobFilter
from broker.model.jobs import AttemptPhase, OutcomeKind
from broker.simulator.checkers import ran
from broker.simulator.scenario import EXPECTATION, Scenario
from broker.simulator.truth import Span
from broker.simulator.world import World
from regional_agent.act.schedulers.port import OutcomeKind as LocalOutcome

Metrics = dict[str, float | int]
_COMPARE = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}


async def measure(world: World, acknowledged_s: Mapping[str, float]) -> Metrics:
    """All metrics of a run by name; `acknowledged_s`: when each job was taken on. The run is over:
    what is still under way has run until now."""
    auditor, truth = world.auditor, world.truth
    spans = [*truth.spans, *truth.running.values()]
    began_s = min(acknowledged_s.values(), default=0.0)
    over_s = max((end.at_s for end in auditor.ended.values()), default=began_s)
    kinds = Counter(end.kind for end in auditor.ended.values())
    first_s: dict[str, float] = {}
    for span in spans:
        first_s[span.job] = min(first_s.get(span.job, span.since_s), span.since_s)
    done = {job: end for job, end in auditor.ended.items() if job in acknowledged_s}
    completion = [
        end.at_s - acknowledged_s[job]
        for job, end in done.items()
        if end.kind != OutcomeKind.CANCELLED.value
    ]
    wait = [first_s[job] - acknowledged_s[job] for job in acknowledged_s if job in first_s]
    metrics: Metrics = {
        "jobs": len(acknowledged_s),
        **{kind.value: kinds[kind.value] for kind in _JOB_ENDS},
        "unfinished": len(acknowledged_s) - len(done),
        "makespan_s": over_s - began_s,
        **_spread("completion_s", completion),
        **_spread("wait_s", wait),
        "usd": await _usd(world),
        "attempts": len(auditor.attempts),
        "starts": len(spans),
        **_loads(world, began_s, over_s),
        **_attempts(world),
        **_tenants(world),
        "decisions": len(world.decider.charged_s),
        "violations": len(truth.violations),
    }
    charged = world.decider.charged_s
    if charged:
        metrics["decision_s_mean"] = sum(charged) / len(charged)
    return {name: round(value, 6) for name, value in metrics.items()}


_JOB_ENDS = (
    OutcomeKind.SUCCEEDED,
    OutcomeKind.FAILED,
    OutcomeKind.CANCELLED,
    OutcomeKind.LOST,
    OutcomeKind.REFUSED,
    OutcomeKind.TIMED_OUT,
)


def _spread(name: str, values: Sequence[float]) -> Metrics:
    """Mean and nearest-rank quantiles; nothing for nothing."""
    if not values:
        return {}
    ordered = sorted(values)
    return {
        f"{name}_mean": sum(ordered) / len(ordered),
        f"{name}_p50": ordered[(len(ordered) - 1) // 2],
        f"{name}_p99": ordered[-(-99 * len(ordered) // 100) - 1],
    }


async def _usd(world: World) -> float:
    page = await world.ledger.jobs(JobFilter(limit=500))
    found = sum(entry.cost_micro_usd for entry in page.jobs)
    while page.next is not None:
        page = await world.ledger.jobs(JobFilter(limit=500, after=page.next))
        found += sum(entry.cost_micro_usd for entry in page.jobs)
    return found / 1e6


def _loads(world: World, began_s: float, over_s: float) -> Metrics:
    """How busy accelerators (or CPU slots) were up to the last end: all, per region, and how evenly
    per cluster."""
    lasted_s = max(over_s - began_s, 1e-9)
    used: Counter[str] = Counter()
    for span in [*world.truth.spans, *world.truth.running.values()]:
        used[span.site] += _ran_by(span, over_s) * span.cards  # type: ignore[assignment]  # seconds
    sites = {plan.name: plan for plan in world.fleet.sites}
    supply = {name: plan.accelerators * lasted_s for name, plan in sites.items()}
    loads = [used[name] / supply[name] for name in sites]
    squares = sum(load * load for load in loads)
    found: Metrics = {
        "utilisation": sum(used.values()) / sum(supply.values()),
        "jain_load": sum(loads) ** 2 / (len(loads) * squares) if squares else 1.0,
    }
    for region in sorted({plan.region for plan in sites.values()}):
        own = [name for name, plan in sites.items() if plan.region == region]
        found[f"used_over_supply.{region}"] = sum(used[n] for n in own) / sum(
            supply[n] for n in own
        )
    return found


def _attempts(world: World) -> Metrics:
    attempts = world.auditor.attempts.values()
    kinds = Counter(a.outcome.kind for a in attempts if a.outcome is not None)
    begun = {span.uid for span in world.truth.spans}
    asked_away = {a.uid for a in attempts if a.outcome and a.outcome.kind in _ASKED_AWAY}
    placed = [a for a in attempts if a.uid in begun or a.uid not in asked_away]
    over = [a for a in placed if a.phase is AttemptPhase.ENDED]
    lost = [s for s in world.truth.spans if s.outcome and s.outcome.kind in _UNDONE]
    found: Metrics = {
        "preemptions": kinds[OutcomeKind.PREEMPTED],
        "moves": kinds[OutcomeKind.MOVED],
        "refusals": kinds[OutcomeKind.REFUSED],
        "withdrawals": kinds[OutcomeKind.WITHDRAWN],
        "lost_work_accelerator_s": sum(ran(span) * span.cards for span in lost),
    }
    if over:
        found["plan_honoured_rate"] = sum(a.uid in begun for a in over) / len(over)
    return found


def _tenants(world: World) -> Metrics:
    """Accelerator seconds that each tenant's jobs ran, where there are several tenants."""
    used: Counter[str] = Counter()
    now_s = world.loop.time()
    for span in [*world.truth.spans, *world.truth.running.values()]:
        attempt = world.auditor.attempts.get(span.uid)
        if attempt is not None:
            ran_s = _ran_by(span, now_s) * span.cards
            used[attempt.tenant] += ran_s  # type: ignore[assignment]  # seconds
    if len(used) < 2:
        return {}
    return {f"accelerator_s.{tenant}": seconds for tenant, seconds in sorted(used.items())}


def _ran_by(span: Span, now_s: float) -> float:
    """Seconds a run took; of one that is under way, those until `now_s`."""
    return ran(span) if span.until_s is not None else max(now_s - span.since_s, 0.0)


_UNDONE = (LocalOutcome.LOST, LocalOutcome.FENCED)
_ASKED_AWAY = (OutcomeKind.CANCELLED,)


def unmet(scenario: Scenario, metrics: Metrics) -> list[str]:
    """Expectations that do not hold, each with what was found."""
    found = []
    for text in scenario.expect:
        match = EXPECTATION.fullmatch(text)
        assert match is not None, "read strictly"
        name, compare, number = match.groups()
        value = metrics.get(name)
        if value is None or not _COMPARE[compare](value, float(number)):
            found.append(f"{text.strip()}: {'no such metric' if value is None else value}")
    return found
