"""What a Ray cluster has, what is free of it, and who waits: one look, by three requests.

Where ours run is known from the jobs themselves: the program that starts tasks or ranks leaves
the node of each in the attempt's directory while it runs.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.accelerators import InvalidAccelerator, identify
from regional_agent.ray.api import DIRECTORY, TAG, RayApi, RayJob
from regional_agent.ray.site import RaySite
from regional_agent.session.ledger import Pool
from regional_agent.session.pool_names import pool_name
from regional_agent.session.resettle import NodeSeen, SiteSeen

CPU = "CPU"
GIB = 2**30
TYPE_RESOURCE, TYPE_LABEL = "accelerator_type:", "ray.io/accelerator-type"
NODES = "nodes"
"""The folder of an attempt in which its running copies name their nodes."""

Shape = tuple[str, int, int, int, str]
"""Model, cards, cpus in thousandths, memory in GiB, and the resource that stands for the model."""


@dataclass(frozen=True, slots=True)
class RayLook:
    """One look: the site as the ledger takes it, by pool the resource by which its nodes are told
    from others, and what could not be used, in sentences."""

    seen: SiteSeen
    models: Mapping[str, str]
    notes: tuple[str, ...] = ()


class RaySense:
    """Looks at one cluster. Raises what `RayApi` does."""

    def __init__(self, site: RaySite, api: RayApi) -> None:
        self._site = site
        self._api = api

    async def look(self, ours: Collection[str]) -> RayLook:
        """The site now; `ours` are the attempts held here."""
        nodes, used, jobs = await asyncio.gather(
            self._api.nodes(), self._api.used(), self._api.jobs()
        )
        live = [job for job in jobs if not job.ended]
        places = await asyncio.to_thread(_places, live)
        return put_together(self._site, Said(nodes, used, live, places), frozenset(ours))


@dataclass(frozen=True, slots=True)
class Said:
    """What a cluster said. `places`: by job the nodes of each copy of it that runs."""

    nodes: Sequence[Mapping[str, Any]]
    used: Mapping[str, Mapping[str, tuple[float, float]]]
    jobs: Sequence[RayJob]
    places: Mapping[str, Sequence[tuple[str, ...]]]


def put_together(site: RaySite, said: Said, ours: frozenset[str]) -> RayLook:
    """One look from what Ray said. Pure. A node that is not alive, or that does not report what
    it uses, is none."""
    members: dict[Shape, list[str]] = defaultdict(list)
    notes: list[str] = []
    for node in sorted(said.nodes, key=lambda n: str(n["node_id"])):
        shape = _shape(site, node, notes)
        if shape is not None and node.get("state") == "ALIVE" and node["node_id"] in said.used:
            members[shape].append(str(node["node_id"]))
    pools: list[Pool] = []
    seen: dict[str, tuple[NodeSeen, ...]] = {}
    where: dict[str, tuple[str, int]] = {}
    models: dict[str, str] = {}
    for shape, some in sorted(members.items()):
        model, cards, cpus_milli, memory_gib, resource = shape
        name = pool_name(model, {pool.name for pool in pools})
        per_node = cards if model != CPU else max(1, cpus_milli // 1000)
        pools.append(Pool(name, model, len(some), per_node, cpus_milli, memory_gib * GIB))
        seen[name] = tuple(_seen(said.used[node], model) for node in some)
        where |= {node: (name, index) for index, node in enumerate(some)}
        models[name] = resource
    others = [job for job in said.jobs if _uid(job) not in ours]
    running = {
        _uid(job): tuple(
            tuple(where[node] for node in copy)
            for copy in said.places.get(job.name, ())
            if all(node in where for node in copy)
        )
        for job in said.jobs
        if _uid(job) in ours
    }
    return RayLook(
        SiteSeen(
            pools=tuple(pools),
            nodes=seen,
            running={uid: copies for uid, copies in running.items() if copies},
            others_running=sum(job.status == "RUNNING" for job in others),
            others_waiting=sum(job.status == "PENDING" for job in others),
        ),
        models,
        tuple(dict.fromkeys(notes)),
    )


def _uid(job: RayJob) -> str:
    """The attempt a job belongs to; empty for one that is not ours."""
    return job.metadata.get(TAG, "").removeprefix("tradewind:").rpartition(":")[0]


def _shape(site: RaySite, node: Mapping[str, Any], notes: list[str]) -> Shape | None:
    total: Mapping[str, float] = node.get("resources_total") or {}
    cards, cpus_milli = int(total.get("GPU", 0)), round(total.get("CPU", 0) * 1000)
    memory_gib = int(total.get("memory", 0) // GIB)
    if not cards:
        return (CPU, 0, cpus_milli, memory_gib, "") if cpus_milli else None
    named = [key.removeprefix(TYPE_RESOURCE) for key in total if key.startswith(TYPE_RESOURCE)]
    labels: Mapping[str, str] = node.get("labels") or {}
    reported = (named or [labels.get(TYPE_LABEL, "")])[0] or site.accelerator
    reported = site.types.get(reported, reported)
    try:
        resource = f"{TYPE_RESOURCE}{named[0]}" if named else ""
        return identify(reported).name, cards, cpus_milli, memory_gib, resource
    except InvalidAccelerator as problem:
        remedy = "say ray.accelerator or types"
        notes.append(f"a node with {cards} cards is left out: {problem}; {remedy}")
        return None


def _seen(used: Mapping[str, tuple[float, float]], model: str) -> NodeSeen:
    cpus = used.get("CPU", (0.0, 0.0))[0]
    cards = used.get("GPU", (0.0, 0.0))[0]
    return NodeSeen(
        accelerators_used=-int(-(cpus if model == CPU else cards) // 1),  # a part is taken whole
        cpus_used_milli=round(cpus * 1000),
        memory_used_bytes=int(used.get("memory", (0.0, 0.0))[0]),
    )



def _places(jobs: Sequence[RayJob]) -> dict[str, list[tuple[str, ...]]]:
    """By job the nodes of its running copies: as they say themselves, else where its program
    runs."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for job in jobs:
        if DIRECTORY not in job.metadata or job.status != "RUNNING":
            continue
        folder = Path(job.metadata[DIRECTORY]) / NODES
        copies = [path.read_text().split() for path in sorted(folder.glob("*.of"))]
        if not copies and not folder.is_dir() and job.node:
            copies = [[job.node]]
        found[job.name] = [tuple(copy) for copy in copies if copy]
    return found
