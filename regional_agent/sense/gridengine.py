"""What a Grid Engine site has, what is free of it, and who waits: one look, by two clients.

A host belongs to one pool, that of the first of the site's queues it is in, so that nothing is
counted twice. Hosts whose queue is disabled, suspended, in alarm or in error, or that do not
answer, take nothing new.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from federation.accelerators import InvalidAccelerator, identify
from federation.local_queue import LocalQueue
from regional_agent.gridengine.client import GridEngineClient, GridEngineSilent
from regional_agent.gridengine.configuration import Configuration, QueueConfig
from regional_agent.gridengine.hosts import (
    HostFacts,
    QueueInstance,
    WaitingJob,
    parse_hosts,
    parse_waiting,
)
from regional_agent.gridengine.quotas import Used, Whose, bounds, used_of
from regional_agent.gridengine.said import TAG
from regional_agent.gridengine.site import GridEngineSite, PoolSource
from regional_agent.session.ledger import Pool
from regional_agent.session.pool_names import pool_name
from regional_agent.session.resettle import NodeSeen, SiteSeen

CPU = "CPU"
SLOTS = "slots"
NAME_PARTS = 3
"""Of the name of a job of ours: `tradewind.<uid>.<part>`."""


@dataclass(frozen=True, slots=True)
class GridEngineLook:
    """One look: the site as the ledger takes it, where each pool's jobs go, and what could not be
    used of it, in sentences."""

    seen: SiteSeen
    sources: Mapping[str, PoolSource]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answers:
    """What the clients said. `amounts`: what each host has of what is counted; `open_to_us`: queue
    instances our user may use, None: all; `used`: of the quotas that are about us."""

    hosts: tuple[HostFacts, ...]
    waiting: tuple[WaitingJob, ...]
    configuration: Configuration
    amounts: Mapping[str, Mapping[str, float]]
    open_to_us: frozenset[str] | None = None
    running: tuple[WaitingJob, ...] = ()
    whose: Whose = Whose()
    used: tuple[Used, ...] = ()


class GridEngineSense:
    """Looks at one site."""

    def __init__(self, site: GridEngineSite, client: GridEngineClient) -> None:
        self._site = site
        self._client = client

    async def look(self, ours: Collection[str]) -> GridEngineLook:
        """The site now; `ours` are the attempts held here. Raises GridEngineSilent."""
        client = self._client
        configuration = await client.configuration()
        said = await asyncio.gather(
            client.out("qhost", "-q", "-j", "-F", "-xml"),
            client.out("qstat", "-u", "*", "-s", "pr", "-r", "-xml"),
        )
        try:
            hosts, listed = parse_hosts(said[0]), parse_waiting(said[1])
        except ValueError as problem:
            raise GridEngineSilent(str(problem)) from problem
        amounts = await client.amounts(host.name for host in hosts)
        opened = await client.open_to(self._site.owner)
        waiting = tuple(job for job in listed if not job.runs_in)
        running = tuple(job for job in listed if job.runs_in)
        whose, used = await client.whose(), await client.used()
        answers = Answers(
            hosts, waiting, configuration, amounts, opened, running, whose, used
        )
        return put_together(self._site, answers, frozenset(ours))


@dataclass(frozen=True, slots=True)
class _Node:
    """A host as a node of its queue."""

    host: HostFacts
    queue: QueueConfig
    instance: QueueInstance
    model: str
    value: str
    cards: int
    slots: int
    memory_bytes: int

    @property
    def shape(self) -> tuple[str, str, int, int, int]:
        """What nodes of one pool have in common; memory in whole GiB, since kernels differ."""
        return (self.queue.name, self.model, self.cards or self.slots, self.slots,
                self.memory_bytes >> 30)  # fmt: skip


def put_together(
    site: GridEngineSite, said: Answers, ours: frozenset[str]
) -> GridEngineLook:
    """One look from what the clients said. Pure."""
    notes: list[str] = []
    members: dict[tuple[str, str, int, int, int], list[_Node]] = defaultdict(list)
    for host in sorted(said.hosts, key=lambda h: h.name):
        node = _node(site, said, host, notes)
        if node is not None:
            members[node.shape].append(node)
    pools: list[Pool] = []
    sources: dict[str, PoolSource] = {}
    seen: dict[str, tuple[NodeSeen, ...]] = {}
    where: dict[str, tuple[str, int]] = {}
    for (queue, model, per_node, slots, _), some in sorted(members.items()):
        name = pool_name(f"{queue}-{model}", sources)
        memory = min(node.memory_bytes for node in some)
        pools.append(Pool(name, model, len(some), per_node, slots * 1000, memory))
        config = some[0].queue
        environments = said.configuration.of_queue(config, site.environments)
        sources[name] = PoolSource(
            queue, some[0].value, per_node, slots, len(some), config.walltime_max_s, environments
        )
        seen[name] = tuple(_seen(site, said, node) for node in some)
        where |= {node.host.name: (name, index) for index, node in enumerate(some)}
    others = {(j.local_id, j.index) for h in said.hosts for j in h.jobs if _uid(j.name) not in ours}
    return GridEngineLook(
        SiteSeen(
            pools=tuple(pools),
            nodes=seen,
            running=_running(said.hosts, ours, where),
            max_submit=said.configuration.jobs_max,
            max_array=said.configuration.array_max,
            others_running=len(others),
            others_waiting=sum(j.count for j in said.waiting if _uid(j.name) not in ours),
            cards_bounds=_bounds(said, sources, pools, site.cards, ours),
            slots_bounds=_bounds(said, sources, pools, SLOTS, ours),
            queues=_queues(site, said, sources, seen),
        ),
        sources,
        tuple(dict.fromkeys(notes)),
    )


def _node(
    site: GridEngineSite, said: Answers, host: HostFacts, notes: list[str]
) -> _Node | None:
    """A host in the first queue in use that it is in; None where no job of ours may go."""
    for queue in in_order(site, said.configuration):
        instance = host.queues.get(queue.name)
        opened = said.open_to_us is None or f"{queue.name}@{host.name}" in said.open_to_us
        if instance is None or not instance.batch or not opened:
            continue
        counted = said.amounts.get(host.name, {})
        cards = int(counted.get(site.cards, 0))
        model, value = _model(site, host, cards, notes)
        slots = min(instance.slots, int(counted.get(SLOTS, instance.slots)))
        memory, _ = _memory(site, said, host)
        if not model or not slots:
            return None
        return _Node(host, queue, instance, model, value, cards, slots, int(memory))
    return None


def in_order(site: GridEngineSite, found: Configuration) -> list[QueueConfig]:
    """Queues that are used: as the settings name them, else as the scheduler fills them."""
    if not site.queues:
        return list(found.queues)
    by_name = {queue.name: queue for queue in found.queues}
    return [by_name[name] for name in site.queues if name in by_name]


def _model(
    site: GridEngineSite, host: HostFacts, cards: int, notes: list[str]
) -> tuple[str, str]:
    """The canonical name of what a host offers, and what its resource says; empty, with a note,
    where nobody can know."""
    if not cards:
        return CPU, ""
    value = host.resources.get(site.model, "") if site.model else ""
    called = site.types.get(value, value) or site.accelerator
    try:
        return identify(called).name, value
    except InvalidAccelerator as problem:
        kind = f"{site.model}={value}" if value else site.cards
        hint = f"types: {{{value}: NAME}}" if value else "accelerator: NAME"
        notes.append(f"hosts with {kind} are left out: {problem}; say gridengine: {{{hint}}}")
        return "", ""



def _seen(site: GridEngineSite, said: Answers, node: _Node) -> NodeSeen:
    """What is not left of it. Slots of advance reservations are as good as used."""
    host, counted = node.host, said.amounts.get(node.host.name, {})
    used = node.instance.used + node.instance.reserved
    if SLOTS in counted:  # counted over all queues of the host
        used = max(used, int(counted[SLOTS] - host.left(SLOTS)))
    used = min(node.slots, used)
    _, memory = _memory(site, said, host)
    cards = int(counted.get(site.cards, 0) - host.left(site.cards))
    return NodeSeen(
        accelerators_used=used if node.model == CPU else max(0, cards),
        cpus_used_milli=used * 1000,
        memory_used_bytes=max(0, int(memory)),
        takes_jobs=not node.instance.state,
    )


def _bounds(
    said: Answers,
    sources: Mapping[str, PoolSource],
    pools: Sequence[Pool],
    resource: str,
    ours: frozenset[str],
) -> tuple[tuple[frozenset[str], int], ...]:
    """What quotas leave us of cards, or of slots for pools of slots, beside what others use."""
    slots = resource == SLOTS
    names = [pool.name for pool in pools if (pool.accelerator == CPU) == slots]
    queues = {sources[name].queue for name in names}
    found = []
    for bound in bounds(said.configuration.quotas, resource, said.whose, queues):
        held = sum(
            _holds(said, job, resource)
            for job in said.running
            if job.runs_in in bound.queues and _uid(job.name) in ours
        )
        others = max(0.0, used_of(bound, resource, said.used) - held)
        there = frozenset(name for name in names if sources[name].queue in bound.queues)
        found.append((there, max(0, int(bound.most - others))))
    return tuple(found)


def _holds(said: Answers, job: WaitingJob, resource: str) -> float:
    if resource == SLOTS:
        return job.slots
    times = 1 if resource in said.configuration.per_job else job.slots
    return job.requests.get(resource, 0) * times


def _memory(site: GridEngineSite, said: Answers, host: HostFacts) -> tuple[float, float]:
    """What a host has and what is used of it, in bytes: of what is counted the one with the least
    left, else as its load values say."""
    counted = said.amounts.get(host.name, {})
    names = [n for n in said.configuration.memory.asked(site.memory) if counted.get(n)]
    if not names:
        return host.left("mem_total"), host.left("mem_used")
    least = min(names, key=host.left)
    return counted[least], counted[least] - host.left(least)


def _uid(name: str) -> str:
    """The attempt a job is part of; empty for one of others."""
    parts = name.split(".")
    return parts[1] if len(parts) == NAME_PARTS and parts[0] == TAG else ""


def _running(
    hosts: Sequence[HostFacts],
    ours: frozenset[str],
    where: Mapping[str, tuple[str, int]],
) -> dict[str, tuple[tuple[tuple[str, int], ...], ...]]:
    """Per attempt of ours the nodes of each copy of it that runs, a slot each, its script's first:
    in that order its members are started."""
    copies: dict[tuple[str, str, int], list[tuple[bool, tuple[str, int]]]] = defaultdict(list)
    for host in hosts:
        for job in host.jobs if host.name in where else ():
            if _uid(job.name) in ours:
                key = _uid(job.name), job.local_id, job.index
                copies[key].append((not job.first, where[host.name]))
    found: dict[str, list[tuple[tuple[str, int], ...]]] = defaultdict(list)
    for (uid, _, _), sits in sorted(copies.items()):
        head = min(sits)[1]
        ordered = sorted((place for _, place in sits), key=lambda place: (place != head, place))
        found[uid].append(tuple(ordered))
    return {uid: tuple(each) for uid, each in found.items()}


def _queues(
    site: GridEngineSite,
    said: Answers,
    sources: Mapping[str, PoolSource],
    seen: Mapping[str, tuple[NodeSeen, ...]],
) -> dict[str, LocalQueue]:
    """Per pool who is in front: of those that may start, by the queues they name. Grid Engine
    expects no starts; where something is free and nobody waits it is at once."""
    found = {}
    for name, source in sources.items():
        waiting = cards = 0
        for job in said.waiting:
            if job.state == "qw" and (not job.queues or source.queue in job.queues):
                times = 1 if site.cards in said.configuration.per_job else job.slots
                waiting += job.count
                cards += int(job.count * job.requests.get(site.cards, 0) * times)
        free = any(n.takes_jobs and n.accelerators_used < source.per_node for n in seen[name])
        at_once = 0 if free and not waiting else None
        found[name] = LocalQueue(waiting, cards, at_once, at_once)
    return found
