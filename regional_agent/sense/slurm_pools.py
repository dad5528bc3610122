"""A Slurm site as its ledger takes it, put together from what its clients said. Pure.

A node belongs to one pool, that of the first of the site's partitions it is in, so that nothing
is counted twice. Nodes that are drained, down, reserved or in maintenance take nothing new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from federation.accelerators import InvalidAccelerator, identify
from federation.site_limits import ClosedWindow
from regional_agent.session.ledger import Pool
from regional_agent.session.pool_names import pool_name
from regional_agent.session.resettle import NodeSeen, SiteSeen
from regional_agent.slurm import licences, limits, nodes, queue
from regional_agent.slurm.node_features import features_of
from regional_agent.slurm.site import PoolSource, SlurmSite

CPU = "CPU"
MIB = 2**20
NAMED_MAX = 8
MAINTENANCE = "maintenance at the site"


@dataclass(frozen=True, slots=True)
class SlurmLook:
    """One look: the site as the ledger takes it, where each pool's jobs go, what could not be
    used of it, in sentences, and all words its nodes are described by."""

    seen: SiteSeen
    sources: Mapping[str, PoolSource]
    notes: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SlurmAnswers:
    """What the clients said."""

    facts: tuple[nodes.NodeFacts, ...]
    partitions: tuple[limits.Partition, ...]
    reservations: tuple[nodes.Reserved, ...]
    rows: tuple[queue.QueueRow, ...]
    limits: limits.Limits
    licences: tuple[licences.Licence, ...] = ()
    switches: Mapping[str, str] = field(default_factory=dict)


def put_together(
    site: SlurmSite, said: SlurmAnswers, ours: frozenset[str], now_ms: int
) -> SlurmLook:
    """One look from what the clients said. Pure."""
    notes: list[str] = []
    members: dict[tuple[str, str, int, int, int], list[nodes.NodeFacts]] = defaultdict(list)
    order = _in_order(site, said.partitions)
    for node in sorted(said.facts, key=lambda n: n.name):
        partition = next((p for p in order if p.name in node.partitions), None)
        if partition is not None:
            model = _model(site, node, notes)
            shape = (partition.name, model, max(1, node.cards or node.cpus), node.cpus,
                     node.memory_mib)  # fmt: skip
            if model:
                members[shape].append(node)
    blocked = _blocked(said.reservations, now_ms)
    pools: list[Pool] = []
    sources: dict[str, PoolSource] = {}
    seen: dict[str, tuple[NodeSeen, ...]] = {}
    where: dict[str, tuple[str, int]] = {}
    walltimes = {p.name: p.walltime_max_s for p in order}
    for shape, some in sorted(members.items()):
        part, model, per_node, cpus, memory_mib = shape
        name = pool_name(f"{part}-{model}", {pool.name for pool in pools})
        plain = Pool(name, model, len(some), per_node, cpus * 1000, memory_mib * MIB)
        pools.append(_described(plain, some, said, notes))
        gres = some[0].gres if model != CPU else ""
        limit_s = walltimes[part]
        sources[name] = PoolSource(part, gres, per_node, len(some), limit_s)
        seen[name] = tuple(_seen(node, blocked, model) for node in some)
        where |= {node.name: (name, index) for index, node in enumerate(some)}
    others = [row for row in said.rows if ours.isdisjoint(row.uids)]
    return SlurmLook(
        SiteSeen(
            pools=tuple(pools),
            nodes=seen,
            running=_running(said.rows, ours, where),
            closed=_closed(said.reservations, frozenset(where)),
            max_submit=said.limits.jobs_max,
            max_array=said.limits.array_max,
            extras_used={each.name: each.used for each in said.licences if each.total},
            others_running=sum(row.runs for row in others),
            others_waiting=sum(
                row.indices.count if row.indices else 1 for row in others if row.pending
            ),
        ),
        sources,
        tuple(dict.fromkeys(notes)),
        frozenset(word for node in said.facts for word in node.features),
    )


def _described(
    pool: Pool, some: Sequence[nodes.NodeFacts], said: SlurmAnswers, notes: list[str]
) -> Pool:
    """The pool with all that jobs may ask for beside its size, and the switches of its nodes."""
    features, left_out = features_of(some)
    if left_out:
        named = ", ".join(left_out[:NAMED_MAX])
        notes.append(f"{pool.name}: features jobs cannot ask for, {len(left_out)}: {named}")
    extras = tuple((each.name, each.total) for each in said.licences if each.total)
    racks = tuple(said.switches.get(node.name, "") for node in some)
    one = racks[0] if len(set(racks)) == 1 else ""
    return replace(
        pool,
        features=features,
        extras=extras,
        site_extras=frozenset(dict(extras)),
        domain=one,
        racks=() if len(set(racks)) == 1 else racks,
    )


def _in_order(
    site: SlurmSite, found: Sequence[limits.Partition]
) -> list[limits.Partition]:
    """Partitions that are used and up: as the settings name them, else the usual one first."""
    up = [part for part in found if part.up]
    if site.partitions:
        by_name = {part.name: part for part in up}
        return [by_name[name] for name in site.partitions if name in by_name]
    return sorted(up, key=lambda part: (not part.usual, part.name))


def _model(site: SlurmSite, node: nodes.NodeFacts, notes: list[str]) -> str:
    """The canonical name of what a node offers; empty, with a note, where nobody can know."""
    if not node.cards:
        return CPU
    reported = site.gres.get(node.gres or "gpu", node.gres)
    try:
        return identify(reported).name
    except InvalidAccelerator as problem:
        kind = node.gres or "gpu"
        notes.append(f"nodes with {kind} are left out: {problem}; say gres: {{{kind}: NAME}}")
        return ""



def _seen(node: nodes.NodeFacts, blocked: frozenset[str], model: str) -> NodeSeen:
    return NodeSeen(
        accelerators_used=node.cpus_used if model == CPU else node.cards_used,
        cpus_used_milli=node.cpus_used * 1000,
        memory_used_bytes=node.memory_used_mib * MIB,
        takes_jobs=node.takes_jobs and node.name not in blocked,
    )


def _blocked(reservations: Sequence[nodes.Reserved], now_ms: int) -> frozenset[str]:
    """Nodes kept for somebody, or for maintenance, at this time."""
    now_s = now_ms // 1000
    current = [r.nodes for r in reservations if r.from_s <= now_s < r.until_s]
    return frozenset().union(*current)


def _closed(
    reservations: Sequence[nodes.Reserved], used: frozenset[str]
) -> tuple[ClosedWindow, ...]:
    """Maintenance of every node that is used."""
    return tuple(
        ClosedWindow(r.from_s * 1000, r.until_s * 1000, f"{MAINTENANCE}: {r.name}")
        for r in reservations
        if r.maintenance and used and used <= r.nodes
    )


def _running(
    rows: Sequence[queue.QueueRow],
    ours: frozenset[str],
    where: Mapping[str, tuple[str, int]],
) -> dict[str, tuple[tuple[tuple[str, int], ...], ...]]:
    """Per attempt of ours the nodes of each copy of it that runs."""
    found: dict[str, list[tuple[tuple[str, int], ...]]] = defaultdict(list)
    for row in rows:
        if not row.runs:
            continue
        for uid in ours.intersection(row.uids):
            sits = tuple(where[name] for name in nodes.expand(row.node_list) if name in where)
            if sits:
                found[uid].append(sits)
    return {uid: tuple(copies) for uid, copies in found.items()}
