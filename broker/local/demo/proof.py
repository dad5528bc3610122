"""Did everything run exactly once? Told from the lines that the programs left. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Proof:
    """`twice` and `missing` name jobs, with what was found and what was expected."""

    starts: int
    expected: int
    twice: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every process of every job started once."""
        return not self.twice and not self.missing


def prove(
    lines: Iterable[str], expected: Mapping[str, int], names: Mapping[str, str]
) -> Proof:
    """`lines`: one `attempt task rank` per start. `expected`: starts by job id; `names` of them.

    A line is of the job its attempt's uid begins with. The same task and rank of one job twice is
    a second run, whichever attempt it was.
    """
    seen: dict[str, Counter[tuple[str, str]]] = {job: Counter() for job in expected}
    for line in lines:
        attempt, _, rest = line.partition(" ")
        task, _, rank = rest.partition(" ")
        job = attempt.rpartition("-")[0]
        seen.setdefault(job, Counter())[task, rank] += 1
    twice = tuple(
        f"{names.get(job, job)}: task {task or '-'} rank {rank} started {count} times"
        for job, starts in seen.items()
        for (task, rank), count in sorted(starts.items())
        if count > 1
    )
    missing = tuple(
        f"{names.get(job, job)}: {len(seen[job])} of {wanted} started"
        for job, wanted in expected.items()
        if len(seen[job]) < wanted
    )
    total = sum(starts.total() for starts in seen.values())
    return Proof(total, sum(expected.values()), twice, missing)
