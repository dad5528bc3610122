"""Group jobs that are alike in everything that decides into classes with a count.

The study behind this: a model with one variable per job does not scale, one per class and pool
does.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

from broker.model.problem import Job

_MAPPED = ("accelerators", "excluded", "extras_per_replica", "topology_usd")
_FIGURES = attrgetter(
    *(f.name for f in fields(Job) if f.name not in ("id", "count", *_MAPPED))
)
_MAPPINGS = attrgetter(*_MAPPED)


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs that are alike. `job` is the oldest, `members` are indices into `Problem.jobs` with
    the oldest first, `count` the copies of all members; `key` is what they have in common."""

    job: Job
    count: int
    members: tuple[int, ...]
    key: Hashable = None


def group_jobs(jobs: Sequence[Job]) -> tuple[JobClass, ...]:
    """The classes of some jobs, in the order of their oldest member."""
    members: dict[Hashable, list[int]] = {}
    for index, job in enumerate(jobs):
        members.setdefault(_key(job), []).append(index)
    return tuple(
        JobClass(
            job=jobs[indices[0]],
            count=sum(jobs[index].count for index in indices),
            members=tuple(indices),
            key=key,
        )
        for key, indices in members.items()
    )


def share_among_members(
    jobs: Sequence[Job], job_class: JobClass, placed: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int]]:
    """Give the placed copies of a class, as (pool index, copies), to its members: the oldest
    job first. Returns (job index, pool index, copies)."""
    shares: list[tuple[int, int, int]] = []
    members = iter(job_class.members)
    member, left = -1, 0
    for pool, copies in placed:
        rest = copies
        while rest > 0:
            if left == 0:
                member = next(members)
                left = jobs[member].count
            given = min(rest, left)
            shares.append((member, pool, given))
            rest -= given
            left -= given
    return shares


def _key(job: Job) -> Hashable:
    # How a job spreads, and what its forms have in common, depends on its own copies alone.
    spreads = job.spread_max_per_cluster is not None or job.one_per_node or job.form_of
    own = job.id if spreads else ""
    return (own, _FIGURES(job), *(_frozen(value) for value in _MAPPINGS(job)))


def _frozen(mapping: Mapping[str, Hashable]) -> Hashable:
    return tuple(sorted(mapping.items(), key=lambda item: item[0])) if mapping else ()
