"""What a Slurm site has, what is free of it, and who waits: one look, by three clients.

A node belongs to one pool, that of the first of the site's partitions it is in, so that nothing
is counted twice. Nodes that are drained, down, reserved or in maintenance take nothing new.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from federation.accelerators import InvalidAccelerator, identify
from federation.local_queue import LocalQueue
from federation.site_limits import ClosedWindow
from regional_agent.clients import ClientSilent, run_client
from regional_agent.session.ledger import Pool
from regional_agent.session.resettle import NodeSeen, SiteSeen
from regional_agent.slurm import associations, limits, nodes, queue, waits
from regional_agent.slurm.site import DEFAULT_PATH, PoolSource, SlurmSite
from regional_agent.slurm.start_forecast import StartForecast

CPU = "CPU"
MIB = 2**20
BOUNDS_EVERY_S = 600
PROBE_EVERY_S = 60
PROBES_MAX = 8
"""Pools whose expected start is asked for in one look: each is one more call of a client."""
MAINTENANCE = "maintenance at the site"


class SlurmSilent(Exception):
    """The site could not be looked at; what was known before is only older now."""


@dataclass(frozen=True, slots=True)
class SlurmLook:
    """One look: the site as the ledger takes it, where each pool's jobs go, and what could not
    be used of it, in sentences."""

    seen: SiteSeen
    sources: Mapping[str, PoolSource]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Answers:
    facts: tuple[nodes.NodeFacts, ...]
    partitions: tuple[limits.Partition, ...]
    reservations: tuple[nodes.Reserved, ...]
    rows: tuple[queue.QueueRow, ...]
    limits: limits.Limits


class SlurmSense:
    """Looks at one site."""

    def __init__(
        self,
        site: SlurmSite,
        rows: Callable[[], Awaitable[tuple[queue.QueueRow, ...]]] | None = None,
    ) -> None:
        """`rows` tells the queue where somebody else looks at it already."""
        self._site = site
        self._rows = rows or self._queue
        self._env = {"PATH": DEFAULT_PATH, **site.client_env, **queue.ENVIRONMENT}
        self._limits: limits.Limits | None = None
        self._forecast = StartForecast()
        self._probed: dict[str, tuple[int, int | None]] = {}
        self._bounded: tuple[int, associations.Bounds | None] = (-BOUNDS_EVERY_S, None)

    async def look(self, ours: Collection[str], now_ms: int) -> SlurmLook:
        """The site now; `ours` are the attempts held here. Raises SlurmSilent."""
        if self._limits is None:
            version = limits.parse_version(await self._out("sbatch", "--version"))
            if version < limits.OLDEST:
                old = ".".join(map(str, version))
                raise SlurmSilent(f"Slurm {old} is older than 20.11, the oldest understood")
            config = await self._out("scontrol", "show", "config")
            self._limits = limits.parse_config(config, version)
        said = await asyncio.gather(
            self._out(*_node_words(self._limits.version)),
            self._out("scontrol", "-o", "show", "partition"),
            self._out("scontrol", "-o", "show", "reservation"),
        )
        rows = await self._rows()
        try:
            found = nodes.parse_nodes(said[0])
        except (ValueError, KeyError) as problem:
            raise SlurmSilent(f"its nodes cannot be read: {problem}") from problem
        answers = _Answers(
            found,
            limits.parse_partitions(said[1]),
            nodes.parse_reservations(said[2]),
            rows,
            self._limits,
        )
        found_now = put_together(self._site, answers, frozenset(ours), now_ms)
        queues = await self._queues(found_now, rows, now_ms)
        look = replace(found_now, seen=replace(found_now.seen, queues=queues))
        bounds = await self._bounds(now_ms // 1000)
        return within(look, bounds) if bounds else look

    async def _bounds(self, now_s: int) -> associations.Bounds | None:
        """What accounting lets us have, asked now and then; None where nobody says."""
        if self._limits is None or not self._limits.books:
            return None
        if now_s - self._bounded[0] >= BOUNDS_EVERY_S:
            site, user = self._site, pwd.getpwuid(os.geteuid()).pw_name
            accounts = {site.account, *site.accounts.values()} - {""}
            try:
                own = await self._out(*associations.association_words(user))
                qos = await self._out(*associations.qos_words())
            except SlurmSilent:  # no limits are known of a database that is away; Slurm has them
                return self._bounded[1]
            self._bounded = now_s, associations.parse_bounds(own, qos, accounts, site.qos)
        return self._bounded[1]

    async def _queues(
        self, look: SlurmLook, rows: tuple[queue.QueueRow, ...], now_ms: int
    ) -> dict[str, LocalQueue]:
        """Per pool who is in front, and the start that is to be expected: at once where
        something is free and nobody waits, else what Slurm says, asked once a minute."""
        now_s = now_ms // 1000
        self._forecast.saw(waits.followed(rows), now_s)
        found, asked = {}, 0
        for name, source in look.sources.items():
            ahead = waits.in_front(rows, source.partition)
            if not ahead.waiting and _any_free(look.seen.nodes[name], source):
                found[name] = replace(ahead, start_p50_ms=0, start_p90_ms=0)
                continue
            when_s, start_s = self._probed.get(name, (0, None))
            if now_s - when_s >= PROBE_EVERY_S and asked < PROBES_MAX:
                asked += 1
                start_s = await self._expected(source)
                self._probed[name] = (now_s, start_s)
            found[name] = waits.with_start(
                ahead, self._forecast, source.partition, start_s, now_s
            )
        return found

    async def _expected(self, source: PoolSource) -> int | None:
        """Epoch seconds; None where Slurm does not say."""
        env = {name: self._env[name] for name in self._env if name not in queue.ENVIRONMENT}
        words = waits.probe(self._site, source)
        try:
            answer = await run_client(words, env | {"TZ": "UTC"}, self._site.within_s)
        except ClientSilent:
            return None
        return waits.parse_start(answer.err + answer.out) if answer.code == 0 else None

    async def _queue(self) -> tuple[queue.QueueRow, ...]:
        form = f"--format={queue.FORMAT}"
        return queue.parse_queue(await self._out("squeue", "--noheader", "--all", form))

    async def _out(self, *argv: str) -> str:
        try:
            answer = await run_client(argv, self._env, self._site.within_s)
        except ClientSilent as problem:
            raise SlurmSilent(str(problem)) from problem
        if answer.code:
            raise SlurmSilent(f"{argv[0]}: {answer.said}")
        return answer.out


def within(look: SlurmLook, bounds: associations.Bounds) -> SlurmLook:
    """The look as far as the limits of accounts and QOS let us use it. Pure."""
    seen, most = look.seen, bounds.submit_max
    walltime_s = bounds.walltime_max_s
    return replace(
        look,
        seen=replace(
            seen,
            max_submit=min(most, seen.max_submit or most) if most is not None else seen.max_submit,
            cards_max=bounds.cards_max,
            queues={
                pool: replace(found, pending_max=most or 0) for pool, found in seen.queues.items()
            },
        ),
        sources={
            pool: replace(
                source, walltime_max_s=min(walltime_s, source.walltime_max_s or walltime_s)
            ) if walltime_s else source
            for pool, source in look.sources.items()
        },
    )  # fmt: skip


def _any_free(nodes_seen: Sequence[NodeSeen], source: PoolSource) -> bool:
    return any(n.takes_jobs and n.accelerators_used < source.per_node for n in nodes_seen)


def _node_words(version: tuple[int, int]) -> tuple[str, ...]:
    if version >= limits.NODES_BY_SCONTROL:
        return ("scontrol", "show", "nodes", "--json")
    return ("sinfo", "--json")


def put_together(
    site: SlurmSite, said: _Answers, ours: frozenset[str], now_ms: int
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
        name = _name(part, model, {pool.name for pool in pools})
        pools.append(Pool(name, model, len(some), per_node, cpus * 1000, memory_mib * MIB))
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
            others_running=sum(row.runs for row in others),
            others_waiting=sum(
                row.indices.count if row.indices else 1 for row in others if row.pending
            ),
        ),
        sources,
        tuple(dict.fromkeys(notes)),
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


def _name(partition: str, model: str, taken: Collection[str]) -> str:
    words = "".join(c if c.isalnum() else "-" for c in f"{partition}-{model}".lower())
    name, n = words.strip("-"), 1
    while name in taken:
        n += 1
        name = f"{words.strip('-')}-{n}"
    return name


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
