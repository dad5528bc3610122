"""All that stands against one copy of a job in the pools as they were asked for, whatever forms it
is decided in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from broker.decide.case import build_case
from broker.decide.greedy import Floor
from broker.decide.reasons import Reasons, distance
from broker.model.problem import Job, Pool, Problem
from broker.model.topology import Topology
from federation.refusals import Refusal, RefusalCode


class Against:
    """Beside what is taken already, by pool index; the queues come after all pools."""

    def __init__(self, left: Problem, job: Job) -> None:
        problem = replace(left, jobs=(replace(job, count=1),))
        self._case = build_case(problem)
        self._reasons = Reasons(self._case, Floor(self._case))
        decided = self._case.problem.pools
        self.pools = decided
        if self._case.forms is not None:
            self.pools = (*left.pools, *(pool for pool in decided if pool.queue_of))
        self._parts: dict[str, list[int]] = {}
        for index, pool in enumerate(decided):
            if not pool.stands_in_parts:
                self._parts.setdefault(pool.part_of or pool.name, []).append(index)

    def pool(self, index: int) -> tuple[Refusal, ...]:
        """Reasons against a pool; `NOT_CHOSEN` alone where a copy could start."""
        if self._case.forms is None:
            return tuple(self._reasons.against(0, index))
        pool = self.pools[index]
        found = [told for _, told in self._forms(pool)]
        best = min(found, key=lambda told: (not _starts(told), distance(told[0])))
        return tuple(replace(refusal, subject=self._named(refusal, pool)) for refusal in best)

    def level(self, index: int) -> Topology | None:
        """The level of the cheapest form that could start there; None where none could."""
        pool = self.pools[index]
        able = [job for job, told in self._forms(pool) if _starts(told)]
        return min(able, key=lambda job: job.level_usd * job.members).topology if able else None

    def _forms(self, pool: Pool) -> Iterator[tuple[Job, tuple[Refusal, ...]]]:
        """What stands against each form in each part of a pool."""
        for k, item in enumerate(self._case.classes):
            for index in self._parts.get(pool.name, ()):
                if item.job.members == 1:
                    yield item.job, tuple(self._reasons.against(k, index))
                elif self._all_lie(k, index):
                    yield item.job, (Refusal(RefusalCode.NOT_CHOSEN, pool.name),)

    def _all_lie(self, k: int, index: int) -> bool:
        """Whether all members of a copy find places together with some in this part of a pool."""
        case = self._case
        for bundle in case.bundles.by_class.get(k, ()):
            if any(int(case.options.pool_index[option]) == index for option in bundle.options):
                return Floor(case).place(k, bundle.options[0], bundle.size) == bundle.size
        return False

    def _named(self, refusal: Refusal, pool: Pool) -> str:
        parts = self._parts.get(pool.name, ())
        names = {self._case.problem.pools[index].name for index in parts}
        return pool.name if refusal.subject in names else refusal.subject


def _starts(told: tuple[Refusal, ...]) -> bool:
    return told[0].code is RefusalCode.NOT_CHOSEN
