"""What of one job goes into a problem as several entries, each with its own rank. Pure.

The decision takes them for jobs that do not know each other; what holds for all of an array is
divided among them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from broker.control.build_problem import Waiting
from broker.control.closed_clusters import on_nodes_there
from broker.decide.admission.admit import Entry
from broker.model import problem as pm


def in_parts(
    found: Mapping[int, tuple[Waiting, pm.Job]], entries: Iterable[Entry]
) -> Iterator[tuple[Entry, Waiting]]:
    """Each entry with who stands for it; the oldest members of a class go first."""
    given: dict[int, int] = {}
    number: dict[int, int] = {}
    for entry in entries:
        if entry.wish not in found:
            continue
        waiting, before = found[entry.wish][0], given.get(entry.wish, 0)
        part = number.get(entry.wish, 0)
        given[entry.wish], number[entry.wish] = before + entry.copies, part + 1
        members = waiting.members[before : before + entry.copies]
        whole = entry.copies == found[entry.wish][1].count
        if whole:
            yield entry, waiting
        else:
            number_of = waiting.part + part
            yield entry, replace(waiting, copies=entry.copies, members=members, part=number_of)


def spread_over_parts(jobs: Sequence[pm.Job], waiting: Mapping[str, Waiting]) -> list[pm.Job]:
    """Parts of an array share how many of its tasks a cluster may have."""
    limited = [job for job in jobs if job.spread_max_per_cluster is not None]
    of_array: dict[str, list[str]] = {}
    for job in limited:
        of_array.setdefault(waiting[job.id].job.id, []).append(job.id)
    most = {}
    for job in limited:
        parts, limit = of_array[waiting[job.id].job.id], job.spread_max_per_cluster or 0
        each, more = divmod(limit, len(parts))
        most[job.id] = each + (parts.index(job.id) < more)
    return [
        replace(job, spread_max_per_cluster=most[job.id]) if job.id in most else job for job in jobs
    ]


def one_part_on_own_nodes(
    jobs: Sequence[pm.Job], waiting: Mapping[str, Waiting], clusters: Iterable[str]
) -> list[pm.Job]:
    """Of an array whose tasks share no node only what has its turn first: another part might be
    given the same nodes."""
    first: dict[str, pm.Job] = {}
    for job in jobs:
        array = waiting[job.id].job.id
        if job.one_per_node and (array not in first or job.priority > first[array].priority):
            first[array] = job
    shut = {cluster: on_nodes_there(cluster) for cluster in clusters} if first else {}
    return [
        replace(job, excluded={**shut, **job.excluded})
        if job.one_per_node and first[waiting[job.id].job.id] is not job
        else job
        for job in jobs
    ]
