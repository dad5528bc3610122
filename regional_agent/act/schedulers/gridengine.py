"""Grid Engine as a `BatchSystem`, by qsub, qstat, qacct and qdel (8.1.9, run for real).

Jobs are not rerunnable (`-r n`) and always have a walltime (`h_rt`). A deletion reaches the script
as SIGUSR2 before anything is killed (`-notify`; the queue's `notify` bounds the grace). The name of
a job carries the tag, because qstat lists nothing else that could.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from federation.refusals import Refusal, RefusalCode
from federation.runs import Runs
from regional_agent.act.schedulers.batch.marks import outcome_of
from regional_agent.act.schedulers.batch.system import (
    SINGLE,
    Account,
    Live,
    Queued,
    Submission,
    Traits,
)
from regional_agent.act.schedulers.port import (
    Feature,
    LaunchOrder,
    Outcome,
    OutcomeKind,
    SchedulerUnavailable,
)
from regional_agent.clients import Answer
from regional_agent.gridengine import said
from regional_agent.gridengine.client import GridEngineClient, GridEngineSilent
from regional_agent.gridengine.configuration import Configuration, Environment
from regional_agent.gridengine.programs import LAUNCHER, MEMBER, MEMBERS, RANKS
from regional_agent.gridengine.quotas import Whose, too_much
from regional_agent.gridengine.shape import Wanted, shape_of
from regional_agent.gridengine.site import GridEngineSite, PoolSource

YEAR_S = 365 * 86_400
SLACK_S = 60
BOOK_DAYS = 7
FEW = 4
ARRAY_MAX = 10_000
ANY = 2**30
"""Slots and hosts of a queue that was not looked at."""
_BASE = frozenset({Feature.ARRAY, Feature.SET_SLICE, Feature.MAX_RUNTIME, Feature.LIVE_LOGS,
                   Feature.ADOPT, Feature.QUEUE, Feature.FENCE})  # fmt: skip
HEADER = """TW_LOCAL=$JOB_ID
TW_INDEX=$SGE_TASK_ID
[ "$TW_INDEX" != undefined ] || TW_INDEX=
"""
UNHEARD = "its host does not answer Grid Engine ({} is in state u): nothing is known of it"
GIVEN_UP = "its host did not answer Grid Engine any more ({}), and the site has ended it"
SAY_MEMORY = "resources.memory: the site runs no job that does not say how much ({} is forced)"
OVER_LIMIT = ("exceeded", "job_limit", "rejected")


class GridEngine:
    """See the module. `pools` are those of the last look at the site, by name."""

    def __init__(self, site: GridEngineSite) -> None:
        self._site = site
        self.client = GridEngineClient(site)
        self.pools: Mapping[str, PoolSource] = {}
        self._silent: dict[tuple[str, int], str] = {}

    async def traits(self) -> Traits:
        """Its limits; gangs where one of its queues has an environment for them."""
        found = await self._configuration()
        usable = [e for q in found.queues for e in found.of_queue(q, self._site.environments)]
        gangs = {Feature.GANG, Feature.ONE_NODE} if any(map(_for_gangs, usable)) else set()
        return Traits(
            kind="gridengine",
            header=HEADER,
            features=_BASE | gangs,
            first_index=1,
            array_max=min(found.array_max, ARRAY_MAX),
            launcher=LAUNCHER,
            stop_ranks=":",
            one_run=True,
            stop_signals="TERM USR2",
            time_signals="USR1 ALRM",
            stopped_is_cancelled=True,
            kills_group=True,
        )  # fmt: skip

    async def submit(self, job: Submission) -> str | Refusal:
        """By qsub. Refuses unsupported, site_limit, submit_failed."""
        order, source = job.order, await self._source(job.order)
        shape = await self._shape(order, source)
        if isinstance(shape, Refusal):
            return shape
        walltime = self._walltime(order, source)
        if isinstance(walltime, Refusal):
            return walltime
        if order.replicas > 1:
            await asyncio.to_thread(_lay_ranks, job.script.parent)
        answer = await self._run(
            [
                "qsub", "-terse", "-r", "n", "-notify", "-S", "/bin/sh", "-j", "y",
                "-N", _name(job.tag), "-wd", str(job.work), "-o", str(job.log),
                *walltime, *shape, *_elements(job),
                *(["-q", source.queue] if source.queue else []),
                *(["-P", self._site.project] if self._site.project else []), str(job.script),
            ]
        )  # fmt: skip
        if answer.code == 0:
            return answer.out.split(".")[0].strip()
        over = any(words in answer.err for words in OVER_LIMIT)
        code = RefusalCode.SITE_LIMIT if over else RefusalCode.SUBMIT_FAILED
        return Refusal(code, order.uid, available=answer.said)

    def _walltime(self, order: LaunchOrder, source: PoolSource) -> list[str] | Refusal:
        """Always sent: the hard limit, and before it the soft one, which warns."""
        limits = [each for each in (self._site.max_runtime_s, source.walltime_max_s) if each]
        limit_s = min(limits, default=YEAR_S)
        if order.max_runtime_s > limit_s:
            there = f"walltime of at most {limit_s} s"
            return Refusal(RefusalCode.SITE_LIMIT, order.uid, f"{order.max_runtime_s} s", there)
        wanted_s = order.max_runtime_s + order.grace_s + SLACK_S if order.max_runtime_s else limit_s
        hard_s = min(wanted_s, limit_s)
        soft_s = max(1, hard_s - max(order.grace_s, SLACK_S // 2))
        return ["-l", f"h_rt={hard_s}", "-l", f"s_rt={soft_s}"]

    async def _source(self, order: LaunchOrder) -> PoolSource:
        """Where it goes; one whose pool is not known to the first queue in use."""
        pool = order.places[0].pool if order.places else ""
        if pool in self.pools:
            return self.pools[pool]
        found = await self._configuration()
        named = {queue.name: queue for queue in found.queues}
        wanted = [named[name] for name in self._site.queues if name in named]
        if not (wanted or found.queues):
            return PoolSource()
        usual = (wanted or found.queues)[0]
        environments = found.of_queue(usual, self._site.environments)
        return PoolSource(
            usual.name, slots=ANY, nodes=ANY, walltime_max_s=usual.walltime_max_s,
            environments=environments,
        )

    async def _shape(self, order: LaunchOrder, source: PoolSource) -> list[str] | Refusal:
        """Slots, cards, their model, and memory; refused where a quota never lets it have these."""
        site, found = self._site, await self._configuration()
        units = len(order.places[0].accelerators) if order.places else 0
        cards = units if order.accelerator not in ("", "CPU") else 0
        cpus = max(1, -(-order.cpus_milli // 1000), 0 if cards else units)
        per_job = site.cards in found.per_job
        sizes = source.slots, source.nodes
        wanted = Wanted(order.replicas, cpus, cards, order.one_node, *sizes, per_job)
        shape = shape_of(wanted, source.environments)
        if isinstance(shape, str):
            return Refusal(RefusalCode.UNSUPPORTED, order.uid, needed=shape)
        words = ["-pe", shape.environment, str(shape.slots)] if shape.environment else []
        words += ["-l", f"{site.cards}={shape.cards}"] if cards else []
        words += ["-l", f"{site.model}={source.value}"] if cards and source.value else []
        memory, said = order.memory_bytes * order.replicas, found.memory
        if not memory and (forced := said.must(site.memory)):
            return Refusal(RefusalCode.UNSUPPORTED, order.uid, needed=SAY_MEMORY.format(*forced))
        asked: dict[str, float] = {
            "slots": shape.slots,
            site.cards: shape.cards * (1 if per_job else shape.slots),
        }
        for name in said.asked(site.memory) if memory else ():
            each = memory if name in found.per_job else -(-memory // shape.slots)
            words += ["-l", f"{name}={each}"]
            asked[name] = memory
        over = too_much(found.quotas, await self._whose(), source.queue, asked)
        return words if over is None else Refusal(RefusalCode.SITE_LIMIT, order.uid, *over)

    async def look(self, name: str, tag: str, work: Path) -> str | None:
        """In the queue, then in the books."""
        wanted = _name(tag)
        for job in await self._listed():
            if job.name == wanted:
                return job.local_id
        answer = await self._run(["qacct", "-j", wanted])
        for booked in said.parse_qacct(answer.out) if answer.code == 0 else ():
            if booked.name == wanted:
                return booked.local_id
        return None

    async def queue(self) -> tuple[Queued, ...]:
        """Ours, by their names. Of those on a host that does not answer nothing is known."""
        rows = []
        silent: dict[tuple[str, int], str] = {}
        for job in await self._listed():
            if not job.name.startswith(f"{said.TAG}."):
                continue
            indices = SINGLE if job.indices is None else job.indices
            for index in indices:
                self._silent.pop((job.local_id, index), None)
            live, text = _live(job.state), f"Grid Engine says {job.state}"
            if job.silent:
                silent |= {(job.local_id, index): job.silent for index in indices}
                live, text = Live.UNKNOWN, UNHEARD.format(job.silent)
            rows.append(Queued(job.local_id, job.name.replace(".", ":"), indices, live, text))
        self._silent |= silent
        return tuple(rows)

    async def _listed(self) -> tuple[said.ListedJob, ...]:
        whose = ["-u", self._site.owner] if self._site.owner else []
        answer = await self._run(["qstat", "-f", "-ne", "-xml", *whose])
        if answer.code:
            raise SchedulerUnavailable(f"qstat: {answer.said}")
        try:
            return said.parse_qstat(answer.out)
        except ValueError as problem:
            raise SchedulerUnavailable(str(problem)) from problem

    async def books(self, local_ids: Collection[str]) -> tuple[Account, ...]:
        """By qacct: one call a job while they are few, else one over the last days."""
        found: list[said.BookedJob] = []
        if len(local_ids) <= FEW:
            for local_id in sorted(local_ids):
                found += said.parse_qacct((await self._run(["qacct", "-j", local_id])).out)
        else:
            whose = ["-o", self._site.owner] if self._site.owner else []
            words = ["qacct", "-j", "*", *whose, "-d", str(BOOK_DAYS)]
            found += said.parse_qacct((await self._run(words)).out)
        booked = [_account(job) for job in found if job.local_id in local_ids]
        return (*booked, *self._given_up(local_ids, {(a.local_id, a.index) for a in booked}))

    def _given_up(
        self, local_ids: Collection[str], booked: Collection[tuple[str, int]]
    ) -> list[Account]:
        """Jobs that the site ended because their host was silent: it keeps no books of these."""
        asked = {key: where for key, where in self._silent.items() if key[0] in local_ids}
        lost = Outcome(OutcomeKind.LOST)
        return [
            Account(*key, lost, GIVEN_UP.format(where))
            for key, where in asked.items()
            if key not in booked
        ]

    async def stop(self, local_ids: Collection[str]) -> None:
        """See the port: one qdel does both."""
        await self._run(["qdel", *sorted(local_ids)])

    async def remove(self, local_id: str, indices: Runs | None = None) -> None:
        """See the port."""
        some = [["-t", f"{first}-{last}"] for first, last in indices.runs] if indices else [[]]
        for each in some:
            await self._run(["qdel", local_id, *each])

    async def widen(self, local_id: str, width: int) -> None:
        """See the port."""
        if width == 0:
            await self._run(["qhold", local_id])
            return
        await self._run(["qalter", "-tc", str(width), local_id])
        await self._run(["qrls", local_id])

    async def _configuration(self) -> Configuration:
        try:
            return await self.client.configuration()
        except GridEngineSilent as problem:
            raise SchedulerUnavailable(str(problem)) from problem

    async def _whose(self) -> Whose:
        try:
            return await self.client.whose()
        except GridEngineSilent as problem:
            raise SchedulerUnavailable(str(problem)) from problem

    async def _run(self, argv: Sequence[str]) -> Answer:
        try:
            return await self.client.run(argv)
        except GridEngineSilent as problem:
            raise SchedulerUnavailable(str(problem)) from problem


def _for_gangs(environment: Environment) -> bool:
    return environment.one_host or environment.spreads


def _lay_ranks(root: Path) -> None:
    """What a gang's script needs beside it."""
    (root / RANKS).write_text(MEMBERS)
    (root / "member.sh").write_text(MEMBER)


def _name(tag: str) -> str:
    return tag.replace(":", ".")


def _elements(job: Submission) -> list[str]:
    if job.indices is None:
        return []
    ((first, last),) = job.indices.runs
    held = [] if job.width else ["-h"]
    return ["-t", f"{first}-{last}", "-tc", str(max(1, job.width)), *held]


def _live(state: str) -> Live:
    if state in said.PENDING:
        return Live.PENDING
    return Live.RUNNING if state in said.RUNNING else Live.UNKNOWN


def _account(job: said.BookedJob) -> Account:
    text = f"Grid Engine says failed {job.failed}: {job.failed_text}" if job.failed else ""
    if job.failed == 0:
        outcome = outcome_of(job.exit_status)
    elif job.failed == said.H_RT:
        outcome = Outcome(OutcomeKind.TIMED_OUT)
    elif job.failed == said.RESCHEDULED:
        outcome = Outcome(OutcomeKind.PREEMPTED)
    elif job.failed == said.AFTER_JOB:
        outcome = Outcome(OutcomeKind.CANCELLED)
    else:
        outcome = Outcome(OutcomeKind.LOST)
    return Account(
        local_id=job.local_id,
        index=job.index,
        outcome=outcome,
        text=text,
        started_ms=job.started_s * 1000,
        ended_ms=job.ended_s * 1000,
        cpu_ms=job.cpu_ms,
        max_rss_bytes=job.max_memory_bytes,
    )
