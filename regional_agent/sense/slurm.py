"""What a Slurm site has, what is free of it, and who waits: looks at it, by a few clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from federation.local_queue import LocalQueue
from regional_agent.clients import ClientSilent, run_client
from regional_agent.sense.slurm_pools import SlurmAnswers, SlurmLook, put_together
from regional_agent.session.resettle import NodeSeen
from regional_agent.slurm import associations, licences, limits, nodes, queue, rest_said, waits
from regional_agent.slurm.associations import Bounds
from regional_agent.slurm.rest import RestSilent, SlurmRest
from regional_agent.slurm.site import DEFAULT_PATH, PoolSource, SlurmSite
from regional_agent.slurm.start_forecast import StartForecast
from regional_agent.slurm.topology import parse_topology

BOUNDS_EVERY_S = 600
PROBE_EVERY_S = 60
PROBES_MAX = 8
"""Pools whose expected start is asked for in one look: each is one more call of a client."""


class SlurmSilent(Exception):
    """The site could not be looked at; what was known before is only older now."""


class SlurmSense:
    """Looks at one site."""

    def __init__(
        self,
        site: SlurmSite,
        rows: Callable[[], Awaitable[tuple[queue.QueueRow, ...]]] | None = None,
        rest: SlurmRest | None = None,
    ) -> None:
        """`rows` tells the queue where somebody else looks at it already; `rest`, where it is set,
        is asked for what it has to tell instead of clients."""
        self._site = site
        self._rows, self._rest = rows or self._queue, rest
        self._env = {"PATH": DEFAULT_PATH, **site.client_env, **queue.ENVIRONMENT}
        self._limits: limits.Limits | None = None
        self._forecast = StartForecast()
        self._probed: dict[str, tuple[int, int | None]] = {}
        self._switched: tuple[int, Mapping[str, str]] = (-BOUNDS_EVERY_S, {})
        nothing: tuple[Bounds, Mapping[str, Bounds]] = (Bounds(), {})
        self._bounded = (-BOUNDS_EVERY_S, nothing)

    async def look(self, ours: Collection[str], now_ms: int) -> SlurmLook:
        """The site now; `ours` are the attempts held here. Raises SlurmSilent."""
        if self._limits is None:
            version = limits.parse_version(await self._out("sbatch", "--version"))
            if version < limits.OLDEST:
                old = ".".join(map(str, version))
                raise SlurmSilent(f"Slurm {old} is older than 20.11, the oldest understood")
            config = await self._out("scontrol", "show", "config")
            self._limits = limits.parse_config(config, version)
        partitions, reserved = await self._shared_out()
        found, counted = await self._nodes(self._limits.version)
        rows = await self._rows()
        answers = SlurmAnswers(
            found,
            partitions,
            reserved,
            rows,
            self._limits,
            counted,
            await self._switches(now_ms // 1000),
        )
        found_now = put_together(self._site, answers, frozenset(ours), now_ms)
        queues = await self._queues(found_now, rows, now_ms)
        look = replace(found_now, seen=replace(found_now.seen, queues=queues))
        bounds, of_qos = await self._bounds(now_ms // 1000)
        of_partitions = {p.name: of_qos[p.qos] for p in answers.partitions if p.qos in of_qos}
        return within(look, bounds, of_partitions)

    async def _shared_out(
        self,
    ) -> tuple[tuple[limits.Partition, ...], tuple[nodes.Reserved, ...]]:
        """Partitions and reservations."""
        rest, partition = self._rest, ("scontrol", "-o", "show", "partition")
        try:
            if rest is None:
                said = await asyncio.gather(
                    self._out(*partition), self._out("scontrol", "-o", "show", "reservation")
                )
                return limits.parse_partitions(said[0]), nodes.parse_reservations(said[1])
            reserved = rest_said.reservations_of(await rest.get("reservations"))
            if await rest.version() == rest_said.OLD:
                return rest_said.partitions_of(await rest.get("partitions")), reserved
            return limits.parse_partitions(await self._out(*partition)), reserved
        except (RestSilent, ValueError) as problem:
            raise SlurmSilent(str(problem)) from problem

    async def _nodes(
        self, version: tuple[int, int]
    ) -> tuple[tuple[nodes.NodeFacts, ...], tuple[licences.Licence, ...]]:
        """All nodes, and what licences there are."""
        try:
            if self._rest is not None:
                found = nodes.nodes_of(await self._rest.get("nodes"))
                return found, rest_said.licences_of(await self._rest.get("licenses"))
            said = await asyncio.gather(
                self._out(*_node_words(version)), self._out("scontrol", "-o", "show", "lic")
            )
            return nodes.parse_nodes(said[0]), licences.parse_licences(said[1])
        except RestSilent as problem:
            raise SlurmSilent(str(problem)) from problem
        except (ValueError, KeyError) as problem:
            raise SlurmSilent(f"its nodes cannot be read: {problem}") from problem

    async def _switches(self, now_s: int) -> Mapping[str, str]:
        """By node its switch, asked now and then; a site that tells of none fails that."""
        if now_s - self._switched[0] >= BOUNDS_EVERY_S:
            try:
                out = await self._out("scontrol", "-o", "show", "topology")
                self._switched = now_s, parse_topology(out)
            except SlurmSilent:
                self._switched = now_s, self._switched[1]
        return self._switched[1]

    async def _bounds(self, now_s: int) -> tuple[Bounds, Mapping[str, Bounds]]:
        """What accounting lets us have, and what each QOS allows, asked now and then; nothing
        where nobody says."""
        if self._limits is None or not self._limits.books:
            return Bounds(), {}
        if now_s - self._bounded[0] >= BOUNDS_EVERY_S:
            with contextlib.suppress(SlurmSilent):  # a database that is away: Slurm has its limits
                self._bounded = now_s, await self._asked_bounds(f"cluster={self._limits.cluster}")
        return self._bounded[1]

    async def _asked_bounds(self, cluster: str) -> tuple[Bounds, Mapping[str, Bounds]]:
        site, user = self._site, pwd.getpwuid(os.geteuid()).pw_name
        accounts = {site.account, *site.accounts.values()} - {""}
        words = associations.association_words
        own = await self._out(*words(f"user={user}", cluster))
        qos = await self._out(*associations.qos_words())
        above, asked = "", set[str]()
        wanted = set(associations.accounts_of(own, accounts))
        for _ in range(associations.DEPTH_MAX):
            wanted -= asked
            if not wanted:
                break
            said = await self._out(*words(f"account={','.join(sorted(wanted))}", cluster))
            above, asked = above + said, asked | wanted
            wanted = set(associations.parents_of(said).values())
        found = associations.parse_bounds(own, qos, accounts, site.qos, above)
        return found or Bounds(), associations.parse_qos(qos)

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


def within(
    look: SlurmLook, bounds: Bounds, of_partitions: Mapping[str, Bounds] | None = None
) -> SlurmLook:
    """The look as far as the limits of accounts and QOS let us use it, and those of a partition's
    own QOS. Pure."""
    seen, most = look.seen, bounds.submit_max
    there = of_partitions or {}
    of_pool = {
        pool: bounds.within(there.get(source.partition, Bounds()))
        for pool, source in look.sources.items()
    }
    parts = {source.partition for source in look.sources.values()}
    cards = [
        (frozenset(p for p, source in look.sources.items() if source.partition == part), allowed)
        for part in sorted(parts)
        if (allowed := there.get(part, Bounds()).cards_max) is not None
    ]
    return replace(
        look,
        seen=replace(
            seen,
            max_submit=min(most, seen.max_submit or most) if most is not None else seen.max_submit,
            cards_max=bounds.cards_max,
            cards_bounds=tuple(cards),
            queues={
                pool: replace(found, pending_max=of_pool[pool].submit_max or 0)
                for pool, found in seen.queues.items()
            },
        ),
        sources={
            pool: replace(
                source,
                walltime_max_s=_least(source.walltime_max_s, of_pool[pool].walltime_max_s),
                cards_per_job_max=of_pool[pool].cards_per_job_max,
            )
            for pool, source in look.sources.items()
        },
    )


def _least(limit_s: int, other_s: int | None) -> int:
    """0 = no limit."""
    return min(limit_s or other_s, other_s) if other_s else limit_s


def _any_free(nodes_seen: Sequence[NodeSeen], source: PoolSource) -> bool:
    return any(n.takes_jobs and n.accelerators_used < source.per_node for n in nodes_seen)


def _node_words(version: tuple[int, int]) -> tuple[str, ...]:
    if version >= limits.NODES_BY_SCONTROL:
        return ("scontrol", "show", "nodes", "--json")
    return ("sinfo", "--json")
