"""Which policies govern a job, and what they make of it. Pure.

At most two govern a job: the one it names, and of those that match it the one of the highest
priority. All limits intersect: naming a policy never gets a job past one that matches it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from broker.control.expression_facts import job_facts
from broker.control.expressions import ExpressionFailed, holds, words
from broker.model import problem as pm
from broker.model.policies import (
    ISOLATION_GRADES,
    Conflict,
    Defer,
    Failover,
    Hours,
    Match,
    Policies,
    Policy,
    PolicyVersion,
    RttLimit,
    Ruling,
)
from broker.model.replacing import replace
from federation.ids import Region
from federation.jobs import (
    FieldError,
    InvalidJob,
    JobSpec,
    RoundTrip,
    canonical_data,
    class_key,
    parse_job_spec,
)

_NAMED = re.compile(r"([a-z][a-z0-9-]{0,31})(?:@([1-9][0-9]{0,7}))?", re.ASCII)
_JOB = "the job"
_FREE = Ruling(JobSpec.model_construct())
"""Of a job in which no policy has a say, but for the job."""


def govern(
    spec: JobSpec, policies: Policies, regions_of: Mapping[str, str] | None = None
) -> Ruling:
    """What the policies in force make of a job (its tenant filled in).

    `regions_of` maps clusters to their regions where they are known: it finds more conflicts.
    """
    if not policies.current and not policies.unreadable and spec.placement.policy is None:
        return replace(_FREE, spec=spec)
    conflicts = [_unreadable(name, why) for name, why in sorted(policies.unreadable.items())]
    governing: list[PolicyVersion] = []
    try:
        named = _named(spec, policies)
    except ExpressionFailed as failed:
        named = _unsaid(spec.placement.policy or "", failed)
    if isinstance(named, Conflict):
        conflicts.append(named)
    elif named is not None:
        governing.append(named)
    matched = _matched(spec, policies, conflicts)
    if matched is not None and all(v.policy.name != matched.policy.name for v in governing):
        governing.append(matched)
    if not governing:
        return Ruling(spec, conflicts=tuple(conflicts))
    fold = _Fold(spec, regions_of or {}, conflicts)
    for version in governing:
        fold.limit(version)
    for version in reversed(governing):
        fold.weigh(version)
    return fold.ruling(tuple(version.label for version in governing))


def mutated(spec: JobSpec, policies: Policies) -> JobSpec:
    """A job as it is taken on: with the labels and the environment that the policies which govern
    it write in, where the job does not say them itself, and in the tier of the first that names
    one; the same object where they write nothing. Raises InvalidJob."""
    labels: dict[str, str] = {}
    env: dict[str, str] = {}
    tier: int | None = None
    ruling = govern(spec, policies)
    for label in ruling.policies:
        name, _ = _split(label)
        version = policies.current.get(name)
        if version is None or version.label != label:
            continue
        tier = version.policy.tier if tier is None else tier
        for found, said, wanted in (
            (labels, spec.labels, version.policy.mutate.labels),
            (env, spec.env, version.policy.mutate.env),
        ):
            for key, source in wanted.items():
                if key not in said and key not in found:
                    found[key] = _words(source, spec, f"policy {label}", key)
    if not labels and not env and tier in (None, spec.priority):
        return spec
    data = canonical_data(spec)
    changes = {"labels": {**spec.labels, **labels}, "env": {**spec.env, **env}}
    written: dict[str, Any] = {key: said for key, said in changes.items() if said}
    return parse_job_spec(data | written | ({} if tier is None else {"priority": tier}))


def _words(source: str, spec: JobSpec, label: str, key: str) -> str:
    try:
        return words(source, job_facts(spec))
    except ExpressionFailed as failed:
        problem = f"{label} cannot write {key} into this job: {failed}"
        remedy = f"write {key} yourself, or give the job what the expression asks for"
        raise InvalidJob([FieldError(key, "", problem, remedy)]) from None


def matches(match: Match, spec: JobSpec) -> bool:
    """Whether every condition of a match holds for a job. Raises ExpressionFailed where that cannot
    be said."""
    models = spec.resources.accelerator_models or (pm.CPU,)
    return (
        (not match.tenants or spec.tenant in match.tenants)
        and (not match.kinds or spec.kind in match.kinds)
        and all(spec.labels.get(key) == value for key, value in match.labels.items())
        and (not match.accelerators or any(model in match.accelerators for model in models))
        and (not match.when or holds(match.when, job_facts(spec)))
    )


def not_the_newest(spec: JobSpec, policies: Policies) -> Conflict | None:
    """A pin to a version that is not in force: it may be kept, not chosen, so that nobody goes
    back to rules an operator has replaced."""
    name, pin = _split(spec.placement.policy)
    current = policies.current.get(name)
    if not pin or current is None or current.version == pin:
        return None
    return Conflict(
        "placement.policy",
        f"{name}@{pin}",
        f"version {current.version} of this policy is in force",
        f"write {name}@{current.version}, or {name} to follow its changes",
    )


def ruling_class(ruling: Ruling, default_runtime_s: int) -> str:
    """The class key of a job under its policies."""
    key = class_key(ruling.spec, default_runtime_s)
    preferences = (ruling.failovers, ruling.defers, ruling.spread, ruling.spot_share)
    limits = (ruling.round_trips, ruling.latency_usd_per_ms, ruling.wheres, ruling.hours)
    if not any(limits) and not any(preferences):
        return key
    trips = sorted((trip.to, trip.ms) for trip in ruling.round_trips)
    text = f"{key} {ruling.latency_usd_per_ms!r} {trips!r}"
    if ruling.wheres or ruling.hours:
        text += f" {ruling.wheres!r} {ruling.hours!r}"
    if any(preferences):
        text += f" {preferences!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# Which --------------------------------------------------------------------------------------------


def _split(text: str | None) -> tuple[str, int]:
    found = _NAMED.fullmatch(text or "")
    return (found[1], int(found[2] or 0)) if found else ("", 0)


def _named(spec: JobSpec, policies: Policies) -> PolicyVersion | Conflict | None:
    text = spec.placement.policy
    if text is None:
        return None
    name, pin = _split(text)
    if name in policies.unreadable:
        return None
    current = policies.current.get(name)
    if current is None:
        near = get_close_matches(text, policies.current, n=1, cutoff=0.6)
        known = ", ".join(sorted(policies.current)[:20]) or "there are none"
        remedy = f"did you mean {near[0]}?" if near else f"known: {known}"
        return Conflict("placement.policy", text, "no such policy", remedy)
    version = current if pin in (0, current.version) else policies.older(name, pin)
    if version is None:
        remedy = f"write {name}, or {current.label}"
        return Conflict("placement.policy", text, "no such version of this policy", remedy)
    match = version.policy.match
    if match is not None and not matches(match, spec):
        return Conflict(
            "placement.policy",
            text,
            f"policy {version.label} is not for this job: {_unmet(match, spec)}",
            "leave placement.policy out, or name another",
        )
    return version


def _matched(spec: JobSpec, policies: Policies, conflicts: list[Conflict]) -> PolicyVersion | None:
    fitting = []
    for version in policies.current.values():
        try:
            if version.policy.match is not None and matches(version.policy.match, spec):
                fitting.append(version)
        except ExpressionFailed as failed:  # it may govern the job: nothing is placed past it
            conflicts.append(_unsaid(version.label, failed))
    return min(fitting, key=lambda v: (-v.policy.priority, v.policy.name), default=None)


def _unsaid(label: str, failed: ExpressionFailed) -> Conflict:
    return Conflict(
        "placement.policy",
        label,
        f"whether policy {label} is for this job cannot be said: {failed}",
        "give the job what the expression asks for, or an operator corrects the policy",
    )


def _unmet(match: Match, spec: JobSpec) -> str:
    if match.tenants and spec.tenant not in match.tenants:
        return f"it is not for tenant {spec.tenant}"
    if match.kinds and spec.kind not in match.kinds:
        return f"it is for kind {' or '.join(match.kinds)}, the job is {spec.kind}"
    for key, value in match.labels.items():
        if spec.labels.get(key) != value:
            return f"it is for jobs with the label {key}: {value}"
    if match.when and not holds(match.when, job_facts(spec)):
        return "its expression does not hold for it"  # which may name others
    return f"it is for jobs that can run on {' or '.join(match.accelerators)}"


def _unreadable(name: str, why: str) -> Conflict:
    return Conflict(
        "placement.policy",
        name,
        f"policy {name} cannot be read by this version of the broker ({why})",
        f"an operator applies it again: tradewind policy apply, or rollback {name}",
    )


# What it makes of a job ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Fold:
    """A job with the limits folded in so far. `owner` says whose limit stands, for each key."""

    spec: JobSpec
    regions_of: Mapping[str, str]
    conflicts: list[Conflict]
    place: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    owner: dict[str, str] = field(default_factory=dict)
    trips: list[RttLimit] = field(default_factory=list)
    latency_micro_usd_per_ms: int = 0
    wheres: list[tuple[str, str]] = field(default_factory=list)
    hours: list[tuple[Hours, str]] = field(default_factory=list)
    failovers: list[tuple[Failover, str]] = field(default_factory=list)
    defers: list[tuple[Defer, str]] = field(default_factory=list)
    spread: float | None = None
    spot_share: tuple[float, str] | None = None

    def limit(self, version: PolicyVersion) -> None:
        """Fold the limits of one policy in."""
        need, label = version.policy.require, f"policy {version.label}"
        if need.regions:
            self._regions(need.regions, label)
        self._least("max_price_micro_usd_per_accelerator_hour",
                    need.max_price_micro_usd_per_accelerator_hour, label)  # fmt: skip
        self._least("max_start_delay_s", need.max_start_delay_s, label)
        if need.max_rtt is not None:
            self._round_trip(need.max_rtt, label)
        if need.isolation is not None:
            self._isolation(need.isolation, label)
        if need.where:
            self.wheres.append((need.where, label))
        if need.hours is not None:
            self.hours.append((need.hours, label))
        self._spot(version)
        self._prefer(version.policy, label)

    def _prefer(self, policy: Policy, label: str) -> None:
        if policy.failover is not None:
            self.failovers.append((policy.failover, label))
        if policy.defer is not None:
            self.defers.append((policy.defer, label))
        if policy.spread is not None and (self.spread is None or policy.spread < self.spread):
            self.spread, self.owner["spread"] = policy.spread, label
        if policy.spot_share is not None:
            mine = (policy.spot_share, policy.name)
            self.spot_share = min(self.spot_share or mine, mine)

    def weigh(self, version: PolicyVersion) -> None:
        """Take the weights of one policy; what comes later wins."""
        weights = version.policy.weights
        if weights.value_of_time_micro_usd_per_hour is not None:
            key = "value_of_time_micro_usd_per_hour"
            self.changes[key] = weights.value_of_time_micro_usd_per_hour
            self.owner[key] = f"policy {version.label}"
        if weights.latency_micro_usd_per_ms is not None:
            self.latency_micro_usd_per_ms = weights.latency_micro_usd_per_ms
            self.owner["latency_usd_per_ms"] = f"policy {version.label}"

    def ruling(self, labels: tuple[str, ...]) -> Ruling:
        """What came of it."""
        changes = dict(self.changes)
        if self.place:
            changes["placement"] = self.spec.placement.model_copy(update=self.place)
        return Ruling(
            spec=self.spec.model_copy(update=changes) if changes else self.spec,
            policies=labels,
            origins=dict(self.owner),
            round_trips=tuple(self.trips),
            latency_usd_per_ms=self.latency_micro_usd_per_ms / 1e6,
            conflicts=tuple(self.conflicts),
            wheres=tuple(self.wheres),
            hours=tuple(self.hours),
            failovers=tuple(self.failovers),
            defers=tuple(self.defers),
            spread=self.spread,
            spot_share=self.spot_share,
        )

    def _now(self, key: str) -> Any:
        return self.place[key] if key in self.place else getattr(self.spec.placement, key)

    def _side(self, key: str) -> str:
        return self.owner.get(key, _JOB)

    def _least(self, key: str, most: int | None, label: str) -> None:
        given = self._now(key)
        if most is not None and (given is None or most < given):
            self.place[key] = most
            self.owner[key] = label

    def _regions(self, allowed: Sequence[str], label: str) -> None:
        given: tuple[str, ...] = self._now("regions")
        kept = tuple(Region(name) for name in given or allowed if name in allowed)
        sides = f"{self._side('regions')} allows {_or(given)}, {label} allows {_or(allowed)}"
        if not kept:
            self._conflict("placement.regions", _or(given), sides, allowed)
        elif kept != given:
            self.place["regions"] = kept
            self.owner["regions"] = label
        self._reachable(kept or tuple(map(Region, allowed)), label)

    def _reachable(self, allowed: Sequence[str], label: str) -> None:
        """Clusters and avoided places of the job against the regions that are left."""
        place = self.spec.placement
        homes = [self.regions_of.get(cluster) for cluster in place.clusters]
        if homes and all(home is not None and home not in allowed for home in homes):
            named = ", ".join(f"{c} ({h})" for c, h in zip(place.clusters, homes, strict=True))
            sides = f"the job names {named}, {label} allows {_or(allowed)}"
            self._conflict("placement.clusters", ", ".join(place.clusters), sides, allowed)
        if all(region in place.avoid for region in allowed):
            sides = f"the job avoids {', '.join(place.avoid)}, {label} allows {_or(allowed)}"
            self._conflict("placement.avoid", ", ".join(place.avoid), sides, allowed)

    def _conflict(self, path: str, value: str, sides: str, allowed: Sequence[str]) -> None:
        remedy = f"leave {path} out, or make room for {_or(allowed)}"
        self.conflicts.append(Conflict(path, value, f"contradiction: {sides}", remedy))

    def _round_trip(self, limit: RttLimit, label: str) -> None:
        own: RoundTrip | None = self._now("max_rtt")
        user_region = self.spec.placement.user_region
        if own is None and user_region in (None, limit.to):
            self.place["max_rtt"] = RoundTrip(to=Region(limit.to), ms=limit.ms)
            self.owner["max_rtt"] = label
        elif own is not None and own.to == limit.to:
            if limit.ms < own.ms:
                self.place["max_rtt"] = RoundTrip(to=own.to, ms=limit.ms)
                self.owner["max_rtt"] = label
        else:
            self.trips.append(limit)
            self.owner[f"max_rtt to {limit.to}"] = label

    def _isolation(self, grade: str, label: str) -> None:
        resources = self.changes.get("resources", self.spec.resources)
        given = resources.isolation
        if given is None or ISOLATION_GRADES.index(grade) > ISOLATION_GRADES.index(given):
            self.changes["resources"] = resources.model_copy(update={"isolation": grade})
            self.owner["isolation"] = label

    def _spot(self, version: PolicyVersion) -> None:
        allowed, given = version.policy.spot, self._now("spot")
        if allowed is None or given is False or given == allowed:
            return
        self.place["spot"] = allowed
        self.owner["spot"] = f"policy {version.label}"


def _or(names: Sequence[str]) -> str:
    return " or ".join(names) or "any region"
