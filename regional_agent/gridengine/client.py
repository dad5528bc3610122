"""Asking Grid Engine: its clients, bounded in time, and what seldom changes asked for seldom."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import pwd
from collections.abc import Iterable, Mapping, Sequence

from regional_agent.clients import Answer, ClientSilent, run_client
from regional_agent.gridengine.amounts import parse_amounts
from regional_agent.gridengine.configuration import (
    Configuration,
    parse_environment,
    parse_lines,
    parse_memory,
    parse_per_job,
    parse_queues,
)
from regional_agent.gridengine.quotas import Used, Whose, parse_quotas, parse_used
from regional_agent.gridengine.site import DEFAULT_PATH, GridEngineSite

UNREACHABLE = ("unable to contact qmaster", "commlib error", "got send error", "can't connect",
               "unable to send message to qmaster", "failed receiving gdi request")  # fmt: skip
KEPT_S = 600.0
AT_ONCE = 4
"""Clients asking about hosts together; each host is asked about once in ten minutes."""
ARRAY_MAX_USUAL = 75_000


class GridEngineSilent(Exception):
    """The master did not answer: nothing is known of what was asked, or of its effect."""


class GridEngineClient:
    """One site's clients. Every method raises GridEngineSilent."""

    def __init__(self, site: GridEngineSite) -> None:
        self._site = site
        self._env = {"PATH": DEFAULT_PATH, **site.client_env}
        self._kept: dict[str, tuple[float, object]] = {}
        self._asking = asyncio.Lock()

    async def run(self, argv: Sequence[str]) -> Answer:
        """What a client answers."""
        words = [*self._site.prefix, *argv]
        try:
            answer = await run_client(words, self._env, self._site.within_s)
        except ClientSilent as problem:
            raise GridEngineSilent(str(problem)) from problem
        if answer.code and any(words in answer.err for words in UNREACHABLE):
            raise GridEngineSilent(answer.said)
        return answer

    async def out(self, *argv: str) -> str:
        """What a client that must succeed prints."""
        answer = await self.run(argv)
        if answer.code:
            raise GridEngineSilent(f"{argv[0]}: {answer.said}")
        return answer.out

    async def configuration(self) -> Configuration:
        """Queues, environments, limits and quotas, not older than ten minutes."""
        async with self._asking:
            known = self._fresh("configuration")
            if not isinstance(known, Configuration):
                known = await self._configuration()
                self._keep("configuration", known)
            return known

    async def _configuration(self) -> Configuration:
        queues = parse_queues(await self.out("qconf", "-sq", "*"))
        named = {name for queue in queues for name in queue.environments}
        environments = {
            name: parse_environment(await self.out("qconf", "-sp", name)) for name in sorted(named)
        }
        whole = parse_lines(await self.out("qconf", "-sconf"))
        quotas = await self.run(["qconf", "-srqs"])  # fails where there are none
        complexes = await self.out("qconf", "-sc")
        array_max = whole.get("max_aj_tasks", "")
        jobs_max = whole.get("max_u_jobs", "")
        return Configuration(
            queues,
            environments,
            parse_per_job(complexes),
            int(array_max) if array_max.isdigit() and int(array_max) else ARRAY_MAX_USUAL,
            int(jobs_max) if jobs_max.isdigit() else 0,
            parse_quotas(quotas.out) if quotas.code == 0 else (),
            parse_memory(complexes),
        )

    async def amounts(self, hosts: Iterable[str]) -> Mapping[str, Mapping[str, float]]:
        """By host what it has of what is counted, in use or not."""
        room = asyncio.Semaphore(AT_ONCE)

        async def of(host: str) -> tuple[str, Mapping[str, float]]:
            known = self._fresh(f"host {host}")
            if not isinstance(known, dict):
                async with room:
                    said = parse_lines(await self.out("qconf", "-se", host))
                known = parse_amounts(said.get("complex_values", ""))
                self._keep(f"host {host}", known)
            return host, known

        return dict(await asyncio.gather(*map(of, hosts)))

    async def open_to(self, owner: str) -> frozenset[str] | None:
        """The queue instances that a user may use; None where nobody says whose jobs they are."""
        if not owner:
            return None
        known = self._fresh(f"user {owner}")
        if not isinstance(known, frozenset):
            answer = await self.run(["qselect", "-U", owner])  # fails where there is none
            known = frozenset(answer.out.split()) if answer.code == 0 else frozenset()
            self._keep(f"user {owner}", known)
        return known

    async def whose(self) -> Whose:
        """Whose jobs ours are, with the lists of users that quotas name."""
        site = self._site
        known = self._fresh("whose")
        if not isinstance(known, Whose):
            named = {n for q in (await self.configuration()).quotas for r in q for n in r.lists}
            groups = await asyncio.to_thread(_groups_of, site.owner)
            lists = set()
            for name in sorted(named):
                answer = await self.run(["qconf", "-su", name])  # fails where there is none
                entries = parse_lines(answer.out).get("entries", "") if answer.code == 0 else ""
                if not {*entries.replace(",", " ").split()}.isdisjoint(groups):
                    lists.add(name)
            known = Whose(site.owner, site.project, frozenset(lists))
            self._keep("whose", known)
        return known

    async def used(self) -> tuple[Used, ...]:
        """How much is used of the quotas that are about us."""
        if not (await self.configuration()).quotas:
            return ()
        whose = ["-u", self._site.owner] if self._site.owner else []
        project = ["-P", self._site.project] if self._site.project else []
        try:
            return parse_used(await self.out("qquota", *whose, *project, "-xml"))
        except ValueError as problem:
            raise GridEngineSilent(str(problem)) from problem

    def _fresh(self, what: str) -> object:
        at_s, known = self._kept.get(what, (0.0, None))
        return known if asyncio.get_running_loop().time() - at_s < KEPT_S else None

    def _keep(self, what: str, known: object) -> None:
        self._kept[what] = asyncio.get_running_loop().time(), known


def _groups_of(owner: str) -> frozenset[str]:
    """What a list of users may call somebody: by name, and by each group as `@group`."""
    try:
        user = pwd.getpwnam(owner)
    except KeyError:
        return frozenset({owner} - {""})
    names = {owner}
    for gid in os.getgrouplist(owner, user.pw_gid):
        with contextlib.suppress(KeyError):
            names.add(f"@{grp.getgrgid(gid).gr_name}")
    return frozenset(names)
