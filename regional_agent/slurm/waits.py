"""How long the queue of a site is, and when Slurm would start one more job. Pure, but for the words
`probe` hands to sbatch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from federation.local_queue import LocalQueue
from regional_agent.slurm.queue import QueueRow
from regional_agent.slurm.site import PoolSource, SlurmSite
from regional_agent.slurm.start_forecast import StartForecast, Waiting

PROBE_MINUTES = 60
HELD_BACK = frozenset({
    "JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied", "BeginTime",
    "JobArrayTaskLimit", "Cleaning",
})  # fmt: skip
"""Reasons why a job waits that leave others past it."""
_STARTS = re.compile(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")


def in_front(rows: Iterable[QueueRow], partition: str) -> LocalQueue:
    """The jobs a new one of this partition would wait behind, at worst."""
    waiting = accelerators = 0
    for row in rows:
        if row.pending and row.reason not in HELD_BACK and partition in row.partition.split(","):
            count = row.indices.count if row.indices else 1
            waiting += count
            accelerators += count * row.cards
    return LocalQueue(waiting, accelerators)


def followed(rows: Iterable[QueueRow]) -> tuple[Waiting, ...]:
    """The queue as the forecast learns from it; elements of an array that share a row have no
    start of their own."""
    return tuple(
        Waiting(row.job_id, row.partition, row.start_s, row.runs)
        for row in rows
        if (row.pending or row.runs) and (row.indices is None or row.indices.count == 1)
    )


def probe(site: SlurmSite, source: PoolSource) -> Sequence[str]:
    """The question when a job of one card, or cpu, for an hour would start."""
    minutes = min(PROBE_MINUTES, (source.walltime_max_s or PROBE_MINUTES * 60) // 60) or 1
    account = site.account or next(iter(site.accounts.values()), "")
    words = ["sbatch", "--test-only", f"--time={minutes}", "--ntasks=1", "--wrap=true"]
    words += [f"--partition={source.partition}"] if source.partition else []
    words += [f"--gres=gpu:{source.gres}:1"] if source.gres else []
    words += [f"--account={account}"] if account else []
    return [*words, *([f"--qos={site.qos}"] if site.qos else [])]


def parse_start(said: str) -> int | None:
    """The start in epoch seconds that `sbatch --test-only` names, run with TZ=UTC."""
    match = _STARTS.search(said)
    if match is None:
        return None
    return int(datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp())


def with_start(
    queue: LocalQueue, forecast: StartForecast, partition: str, start_s: int | None, now_s: float
) -> LocalQueue:
    """The queue with the wait that start means, as the forecast corrects it."""
    if start_s is None:
        return queue
    half_s, most_s = forecast.corrected_s(partition, max(0.0, start_s - now_s))
    return LocalQueue(
        queue.waiting, queue.waiting_accelerators, round(half_s * 1000), round(most_s * 1000)
    )
