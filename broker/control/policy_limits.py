"""Where the policies of a job keep it out of a cluster, told with the policy's name. Pure."""

from __future__ import annotations

from broker.control.distances import Distances
from broker.control.expression_facts import cluster_facts
from broker.control.expressions import ExpressionFailed, holds
from broker.control.policy_hours import opening_text, opens_at_ms
from broker.model.fleet import ClusterView
from broker.model.policies import ISOLATION_GRADES, RttLimit, Ruling
from federation.refusals import Refusal, RefusalCode

_ADVICE = "choose another policy, or ask an operator"


def policy_refusal(
    ruling: Ruling | None, view: ClusterView, distances: Distances, now_ms: int
) -> Refusal | None:
    """Why a job's policies keep it out of a cluster now; None where they do not."""
    if ruling is None:
        return None
    name = view.identity.name
    if ruling.conflicts:
        first = ruling.conflicts[0]
        return Refusal(
            RefusalCode.POLICY_DENIED, name, available=first.problem, advice=first.remedy
        )
    distant = (_far(ruling, limit, view, distances) for limit in ruling.round_trips)
    return (
        _region(ruling, view)
        or _isolation(ruling, view)
        or next((refusal for refusal in distant if refusal is not None), None)
        or _where(ruling, view)
        or _hours(ruling, view, now_ms)
    )


def _where(ruling: Ruling, view: ClusterView) -> Refusal | None:
    for source, owner in ruling.wheres:
        try:
            if holds(source, cluster_facts(view.identity)):
                continue
            has = "not so"
        except ExpressionFailed as failed:  # what cannot be said does not hold
            has = str(failed)
        name, needed = view.identity.name, f"{source} ({owner})"
        return Refusal(RefusalCode.POLICY_DENIED, name, needed, has, _ADVICE)
    return None


def _hours(ruling: Ruling, view: ClusterView, now_ms: int) -> Refusal | None:
    """The latest opening of all windows that are closed now."""
    closed = [(opens_at_ms(hours, now_ms), hours, owner) for hours, owner in ruling.hours]
    closed = [item for item in closed if item[0] > now_ms]
    if not closed:
        return None
    opens_ms, hours, owner = max(closed, key=lambda item: item[0])
    opens = opening_text(hours, opens_ms)
    return Refusal(
        RefusalCode.POLICY_DENIED,
        view.identity.name,
        available=f"starts are not allowed before {opens} ({owner})",
        advice=f"wait until {opens}",
    )


def _region(ruling: Ruling, view: ClusterView) -> Refusal | None:
    owner, allowed = ruling.origins.get("regions"), ruling.spec.placement.regions
    if owner is None or view.identity.region in allowed:
        return None
    return Refusal(
        RefusalCode.POLICY_DENIED,
        view.identity.name,
        needed=f"{' or '.join(allowed)} ({owner})",
        available=view.identity.region,
        advice=_ADVICE,
    )


def _isolation(ruling: Ruling, view: ClusterView) -> Refusal | None:
    owner, wanted = ruling.origins.get("isolation"), ruling.spec.resources.isolation
    given = view.identity.isolation
    rank = ISOLATION_GRADES.index(given) if given in ISOLATION_GRADES else 0
    if owner is None or wanted is None or rank >= ISOLATION_GRADES.index(wanted):
        return None
    return Refusal(
        RefusalCode.ISOLATION_TOO_WEAK,
        view.identity.name,
        needed=f"{wanted} ({owner})",
        available=given or "nothing stated",
        advice=_ADVICE,
    )


def _far(
    ruling: Ruling, limit: RttLimit, view: ClusterView, distances: Distances
) -> Refusal | None:
    pair = (limit.to, str(view.identity.region))
    needed = f"at most {limit.ms:g} ms to {limit.to} ({ruling.origins[f'max_rtt to {limit.to}']})"
    if pair not in distances.known:
        return Refusal(
            RefusalCode.ROUND_TRIP_UNKNOWN,
            view.identity.name,
            needed,
            "nobody measured it",
            "give the agents a latency target there, or type the figure",
        )
    ms = distances.rtt_ms[pair]
    if ms <= limit.ms * (1 + 1e-9):
        return None
    return Refusal(
        RefusalCode.ROUND_TRIP_TOO_LONG,
        view.identity.name,
        needed,
        f"{ms:.4g} ms",
        _ADVICE,
    )
