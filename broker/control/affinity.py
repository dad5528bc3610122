"""Jobs that share no cluster with some others of their tenant: `placement.anti_affinity`. Pure.

It holds both ways: who avoids a label goes to no cluster where a job with it is, and a job with the
label goes to none where somebody is who avoids it. Jobs of other tenants say nothing: their labels
are none of one's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from broker.model.jobs import Attempt
from federation.jobs import JobSpec
from federation.refusals import Refusal, RefusalCode


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A job as its neighbours see it. `avoids` are the labels it shares no cluster with."""

    job: str
    tenant: str
    labels: Mapping[str, str]
    avoids: Mapping[str, str]

    @staticmethod
    def of(job: str, tenant: str, spec: JobSpec) -> Neighbour:
        """A job under its spec."""
        return Neighbour(job, tenant, spec.labels, spec.placement.anti_affinity)

    def avoids_that(self, other: Neighbour) -> bool:
        """Whether this one must not be where the other is."""
        return (
            bool(self.avoids)
            and self.tenant == other.tenant
            and self.job != other.job
            and all(other.labels.get(key) == value for key, value in self.avoids.items())
        )


Neighbours = Mapping[str, Sequence[Neighbour]]
"""By cluster, who is there."""


def neighbours(
    attempts: Iterable[Attempt], spec_of: Callable[[str], JobSpec | None]
) -> dict[str, list[Neighbour]]:
    """Who is, or is about to be, where, as far as it has labels or avoids some."""
    found: dict[str, dict[str, Neighbour]] = {}
    for attempt in attempts:
        spec = spec_of(attempt.job) if attempt.live else None
        if spec is not None and (spec.labels or spec.placement.anti_affinity):
            here = found.setdefault(str(attempt.cluster), {})
            here[attempt.job] = Neighbour.of(attempt.job, attempt.tenant, spec)
    return {cluster: list(here.values()) for cluster, here in found.items()}


def kept_apart(one: Neighbour, cluster: str, there: Iterable[Neighbour]) -> Refusal | None:
    """Why a job does not go to a cluster where these are; None where it may."""
    for other in there:
        if one.avoids_that(other):
            labels, advice = _words(one.avoids), "leave out placement.anti_affinity, or wait for it"
            return Refusal(
                RefusalCode.KEPT_APART,
                cluster,
                available=f"{other.job} with {labels}",
                advice=advice,
            )
        if other.avoids_that(one):
            return Refusal(
                RefusalCode.KEPT_APART,
                cluster,
                available=f"{other.job}, which avoids {_words(other.avoids)}",
                advice="wait for it",
            )
    return None


def _words(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
