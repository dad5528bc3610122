"""Grid Engine as a `BatchSystem`, by qsub, qstat, qacct and qdel (8.1.9, run for real).

Jobs are not rerunnable (`-r n`) and always have a walltime (`h_rt`). A deletion reaches the script
as SIGUSR2 before anything is killed (`-notify`; the queue's `notify` bounds the grace). The name of
a job carries the tag, because qstat lists nothing else that could.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
from regional_agent.clients import Answer, ClientSilent, run_client
from regional_agent.gridengine import said
from regional_agent.gridengine.site import DEFAULT_PATH, GridEngineSite

YEAR_S = 365 * 86_400
SLACK_S = 60
BOOK_DAYS = 7
FEW = 4
TAG = "tradewind"
HEADER = """TW_LOCAL=$JOB_ID
TW_INDEX=$SGE_TASK_ID
[ "$TW_INDEX" != undefined ] || TW_INDEX=
"""
UNREACHABLE = ("unable to contact qmaster", "commlib error", "got send error", "can't connect",
               "unable to send message to qmaster", "failed receiving gdi request")  # fmt: skip
OVER_LIMIT = ("exceeded", "job_limit", "rejected")


class GridEngine:
    """See the module."""

    def __init__(self, site: GridEngineSite) -> None:
        self._site = site
        self._env = {"PATH": DEFAULT_PATH, **site.client_env}

    async def traits(self) -> Traits:
        """Asks for the queue once, so that a master that does not answer is known."""
        await self.queue()
        return Traits(
            kind="gridengine",
            header=HEADER,
            features=frozenset({
                Feature.ARRAY, Feature.SET_SLICE, Feature.MAX_RUNTIME, Feature.LIVE_LOGS,
                Feature.ADOPT, Feature.QUEUE,
            }),
            first_index=1,
            array_max=10_000,
            one_run=True,
            stop_signals="TERM USR2",
            time_signals="USR1 ALRM",
            stopped_is_cancelled=True,
        )  # fmt: skip

    async def submit(self, job: Submission) -> str | Refusal:
        """By qsub. Refuses unsupported, site_limit, submit_failed."""
        order = job.order
        shape = self._shape(order)
        if isinstance(shape, Refusal):
            return shape
        limit_s = self._site.max_runtime_s or YEAR_S
        if order.max_runtime_s > limit_s:
            there = f"walltime of at most {limit_s} s"
            return Refusal(RefusalCode.SITE_LIMIT, order.uid, f"{order.max_runtime_s} s", there)
        wanted_s = order.max_runtime_s + order.grace_s + SLACK_S if order.max_runtime_s else limit_s
        hard_s = min(wanted_s, limit_s)
        soft_s = max(1, hard_s - max(order.grace_s, SLACK_S // 2))
        site = self._site
        answer = await self._run(
            [
                "qsub", "-terse", "-r", "n", "-notify", "-S", "/bin/sh", "-j", "y",
                "-N", _name(job.tag), "-wd", str(job.work), "-o", str(job.log),
                "-l", f"h_rt={hard_s}", "-l", f"s_rt={soft_s}", *shape, *_elements(job),
                *(["-q", site.queue] if site.queue else []),
                *(["-P", site.project] if site.project else []), str(job.script),
            ]
        )  # fmt: skip
        if answer.code == 0:
            return answer.out.split(".")[0].strip()
        over = any(words in answer.err for words in OVER_LIMIT)
        code = RefusalCode.SITE_LIMIT if over else RefusalCode.SUBMIT_FAILED
        return Refusal(code, order.uid, available=answer.said)

    def _shape(self, order: LaunchOrder) -> list[str] | Refusal:
        if order.replicas > 1:
            return Refusal(RefusalCode.UNSUPPORTED, order.uid, needed="gangs")
        words: list[str] = []
        units = len(order.places[0].accelerators) if order.places else 0
        cards = order.accelerator not in ("", "CPU")
        if cards and units:
            words += ["-l", f"{self._site.cards}={units}"]
        slots = max(1, -(-order.cpus_milli // 1000), 0 if cards else units)
        if slots > 1 and self._site.environment:
            words += ["-pe", self._site.environment, str(slots)]
        elif slots > 1:
            needed = f"{slots} slots, and no parallel environment is named"
            return Refusal(RefusalCode.UNSUPPORTED, order.uid, needed=needed)
        return words

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
        """Ours, by their names."""
        return tuple(
            Queued(
                job.local_id,
                job.name.replace(".", ":"),
                SINGLE if job.indices is None else job.indices,
                _live(job.state),
                f"Grid Engine says {job.state}",
            )
            for job in await self._listed()
            if job.name.startswith(f"{TAG}.")
        )

    async def _listed(self) -> tuple[said.ListedJob, ...]:
        whose = ["-u", self._site.owner] if self._site.owner else []
        answer = await self._run(["qstat", "-xml", *whose])
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
        return tuple(_account(job) for job in found if job.local_id in local_ids)

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

    async def _run(self, argv: Sequence[str]) -> Answer:
        words = [*self._site.prefix, *argv]
        try:
            answer = await run_client(words, self._env, self._site.within_s)
        except ClientSilent as problem:
            raise SchedulerUnavailable(str(problem)) from problem
        if answer.code and any(words in answer.err for words in UNREACHABLE):
            raise SchedulerUnavailable(answer.said)
        return answer


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
