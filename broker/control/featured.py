"""What jobs ask of nodes beside accelerators: the features a site gives its nodes. Pure.

Which of a pool's nodes have them decides how many replicas they hold, so a decision takes it as
one more thing of the pool that is counted. Nodes that others take in the same decision are not
known to it: the site, which fills its nodes itself, has the last word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from broker.model.fleet import ClusterView, NodeGroup
from federation.features import has_features, in_words
from federation.jobs import JobSpec
from federation.refusals import Refusal, RefusalCode

NAMED_MAX = 12
"""Features of a cluster that a refusal names."""


@dataclass(frozen=True, slots=True)
class Featured:
    """Replicas of so many accelerators on nodes with these features."""

    features: tuple[str, ...]
    accelerators: int

    @property
    def name(self) -> str:
        """What is counted, for people."""
        return f"places of {self.accelerators} on nodes with {in_words(self.features)}"


def featured(spec: JobSpec, accelerators: int) -> Featured | None:
    """What a replica of the job asks of its node; None for nothing."""
    features = spec.resources.features
    return Featured(tuple(sorted(features)), accelerators) if features else None


def featured_places(
    groups: Iterable[NodeGroup], wanted: Collection[Featured]
) -> dict[str, int]:
    """By name how many replicas the nodes of a pool hold."""
    if not wanted:
        return {}
    known = [group for group in groups if group.features]
    return {
        one.name: sum(
            group.count * (group.free // one.accelerators)
            for group in known
            if has_features(one.features, group.features)
        )
        for one in wanted
    }


def features_missing(spec: JobSpec, view: ClusterView) -> Refusal | None:
    """Whether no node of the cluster is what the job asks for."""
    wanted = spec.resources.features
    if not wanted or view.capacity is None:
        return None
    groups = [group for pool in view.capacity.pools for group in pool.groups]
    if any(has_features(wanted, group.features) for group in groups):
        return None
    known = sorted({word for group in groups for word in group.features})
    named = ", ".join(known[:NAMED_MAX]) + (", ..." if len(known) > NAMED_MAX else "")
    return Refusal(
        RefusalCode.MISSING_FEATURES,
        view.identity.name,
        needed=f"nodes with {in_words(wanted)}",
        available=f"nodes with {named}, and none with all of it"
        if len(wanted) > 1 and known
        else f"nodes with {named}" if known else "nodes of which no feature is told",
        advice="leave out resources.features",
    )
