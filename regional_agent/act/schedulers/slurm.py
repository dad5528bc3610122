"""Slurm as a `BatchSystem`, by its clients: nothing to install, no token, the site's own rules.

A job is submitted once and for all: `--no-requeue`, with a walltime, its attempt's uid as name
and in the comment. Where accounting is on its word about an end is final; else the controller's,
which forgets a job MinJobAge after its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from math import ceil
from pathlib import Path

from federation.features import as_expression
from federation.refusals import Refusal, RefusalCode
from federation.runs import Runs
from regional_agent.act.schedulers.batch.marks import SIGNALS_MAX, outcome_of
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
from regional_agent.act.schedulers.slurm_words import (
    known_words,
    licences,
    shape,
    too_many_cards,
)
from regional_agent.clients import Answer, ClientSilent, run_client
from regional_agent.slurm import books, completions, limits, queue, states
from regional_agent.slurm.books import JobAccount
from regional_agent.slurm.site import DEFAULT_PATH, PoolSource, SlurmSite

MINUTE_S = 60
WARNING_MIN_S = 60
"""Slurm may send the warning a minute early; less than this is no warning."""
UNREACHABLE = ("Unable to contact slurm controller", "Socket timed out", "Connection refused",
               "Unable to establish", "Zero Bytes were transmitted", "Slurm backup controller",
               "Slurm temporarily unable", "Unexpected message received", "Message send failure",
               "Slurm controller not responding", "Munge")  # fmt: skip
OVER_LIMIT = ("Job violates accounting/QOS policy", "Requested time limit is invalid",
              "MaxSubmit", "QOSMax", "AssocMax", "Job size specification", "JobHeld")  # fmt: skip
_SAID = {
    "Invalid feature specification": RefusalCode.MISSING_FEATURES,
    "Invalid license specification": RefusalCode.NO_EXTRAS,
}
GONE = ("Invalid job id", "already completing", "already finished", "Job/step already")
HEADER = """TW_LOCAL=$SLURM_JOB_ID
TW_INDEX=${SLURM_ARRAY_TASK_ID-}
"""
ALONE = """unset SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT
unset SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_MIN SLURM_ARRAY_TASK_STEP
export SLURM_JOB_NAME="$1"
"""
LOOKED_S = 2.0
LAUNCHER = "srun --mpi=none --kill-on-bad-exit=1 --cpu-bind=none --input=none --ntasks=@RANKS@"
_ENDS: Mapping[frozenset[str], OutcomeKind] = {
    states.TIMED_OUT: OutcomeKind.TIMED_OUT,
    states.OUT_OF_MEMORY: OutcomeKind.OUT_OF_MEMORY,
    states.CANCELLED: OutcomeKind.CANCELLED,
    states.PREEMPTED: OutcomeKind.PREEMPTED,
    states.LOST: OutcomeKind.LOST,
}
_BASE = frozenset({Feature.ARRAY, Feature.GANG, Feature.SET_SLICE, Feature.MAX_RUNTIME,
                   Feature.LIVE_LOGS, Feature.ADOPT, Feature.ONE_NODE, Feature.MEMBERS_APART,
                   Feature.QUEUE, Feature.FENCE})  # fmt: skip


class Slurm:
    """See the module. `pools` are those of the last look at the site, by name; `features` all words
    it has for its nodes."""

    def __init__(self, site: SlurmSite, pools: Mapping[str, PoolSource] | None = None) -> None:
        self._site = site
        self._env = {"PATH": DEFAULT_PATH, **site.client_env, **queue.ENVIRONMENT}
        self.pools: Mapping[str, PoolSource] = pools or {}
        self.features: Collection[str] = frozenset()
        self._usual = PoolSource("")
        self.limits: limits.Limits | None = None
        self._looking = asyncio.Lock()
        self._rows: tuple[float, tuple[queue.QueueRow, ...]] | None = None

    async def traits(self) -> Traits:
        """Version, limits, accounting and default partition, asked for once."""
        if self.limits is None:
            version = limits.parse_version((await self._ask("sbatch", "--version")).out)
            said = await self._ask("scontrol", "show", "config")
            self.limits = limits.parse_config(said.out, version)
            parts = (await self._ask("scontrol", "-o", "show", "partition")).out
            self._usual = self._usual_of(limits.parse_partitions(parts))
        memory = {Feature.MEMORY_LIMIT} if self.limits.enforces_memory else set()
        return Traits(
            kind="slurm",
            header=HEADER,
            features=_BASE | memory,
            array_max=self.limits.array_max - 1,
            launcher=LAUNCHER,
            stop_ranks='scancel --signal=TERM "$SLURM_JOB_ID" 2>/dev/null',
            alone=ALONE,
            books=self.limits.books,
        )

    def _usual_of(self, found: Sequence[limits.Partition]) -> PoolSource:
        """Where jobs go whose pool is not known."""
        wanted = self._site.partitions[:1]
        for part in found:
            if part.name in wanted or (not wanted and part.usual):
                return PoolSource(part.name, walltime_max_s=part.walltime_max_s)
        return PoolSource(wanted[0] if wanted else "")

    # Submitting ---------------------------------------------------------------------------------

    async def submit(self, job: Submission) -> str | Refusal:
        """By sbatch. Refuses tenant_not_allowed, unsupported, site_limit, missing_features,
        no_extras, submit_failed."""
        words = self._words(job.order)
        if isinstance(words, Refusal):
            return words
        answer = await self._hand_over(job, [*words, *_elements(job)])
        if answer.code == 0:
            return answer.out.strip().split(";")[0]
        code = next((c for words, c in _SAID.items() if words in answer.err), None)
        if code is None and any(words in answer.err for words in OVER_LIMIT):
            code = RefusalCode.SITE_LIMIT
        code = code or RefusalCode.SUBMIT_FAILED
        return Refusal(code, job.order.uid, available=answer.said)

    async def _hand_over(self, job: Submission, words: Sequence[str]) -> Answer:
        """What sbatch says, told this of the job."""
        comment = queue.comment_of(job.tag, job.members)
        return await self._run(
            [
                "sbatch", "--parsable", "--no-requeue", "--export=ALL", "--input=/dev/null",
                "--open-mode=append", f"--job-name={job.name}", f"--comment={comment}",
                f"--chdir={job.work}", f"--output={job.log}", *words, str(job.script),
            ],
            self._job_env,
        )  # fmt: skip

    @property
    def _job_env(self) -> dict[str, str]:
        """The environment jobs are handed over with."""
        return {name: self._env[name] for name in self._env if name not in queue.ENVIRONMENT}

    async def alike(self, order: LaunchOrder) -> Hashable | None:
        """What sbatch is told, and what the script of a pack says for all of it."""
        await self.traits()
        words = self._words(order)
        if isinstance(words, Refusal):
            return None  # which is told where it goes alone
        return (*words, order.max_runtime_s, order.grace_s, order.replicas)

    def pack_max(self, uids: Sequence[str]) -> int:
        """As many as a comment may name."""
        return queue.members_max(uids)

    async def look_in_packs(self, uid: str) -> tuple[str, int] | None:
        """By the comment, in the queue."""
        for row in await self.rows(LOOKED_S):
            if uid in row.members:
                return row.local_id, row.members.index(uid)
        return None

    def _words(self, order: LaunchOrder) -> list[str] | Refusal:
        """Of sbatch: whose the job is, where it goes, its size and its time."""
        account = self._site.account
        if self._site.accounts:
            account = self._site.accounts.get(order.tenant, "")
            if not account:
                needed = f"an account for tenant {order.tenant}"
                return Refusal(RefusalCode.TENANT_NOT_ALLOWED, order.uid, needed=needed)
        source = self._source(order)
        size = shape(order, source)
        if size is None:
            needed = f"{order.replicas} replicas alike on at most {source.nodes} nodes"
            return Refusal(RefusalCode.UNSUPPORTED, order.uid, needed=needed)
        refused = too_many_cards(order, source)
        if refused is not None:
            return refused
        walltime = self._walltime(order, source)
        if isinstance(walltime, Refusal):
            return walltime
        return [
            *walltime, *size, *_given("partition", source.partition),
            *_given("account", account), *_given("qos", self._site.qos),
            *_given("constraint", as_expression(known_words(order.features, self.features))),
            *_given("licenses", licences(order)),
        ]  # fmt: skip

    def _source(self, order: LaunchOrder) -> PoolSource:
        pool = order.places[0].pool if order.places else ""
        return self.pools.get(pool, self._usual)

    def _walltime(self, order: LaunchOrder, source: PoolSource) -> list[str] | Refusal:
        """Always sent: without one a job waits for ever before a maintenance window."""
        limit_s = source.walltime_max_s
        if self._site.max_runtime_s:
            limit_s = min(limit_s or self._site.max_runtime_s, self._site.max_runtime_s)
        if order.max_runtime_s and limit_s and order.max_runtime_s > limit_s:
            needed, there = f"{order.max_runtime_s} s", f"walltime of at most {limit_s} s"
            return Refusal(RefusalCode.SITE_LIMIT, order.uid, needed, there)
        wanted_s = order.max_runtime_s + order.grace_s + MINUTE_S
        if not order.max_runtime_s:
            wanted_s = limit_s or 365 * 86_400
        wanted_s = min(wanted_s, limit_s) if limit_s else wanted_s
        warning_s = min(max(order.grace_s, WARNING_MIN_S), wanted_s // 2)
        return [f"--time={ceil(wanted_s / MINUTE_S)}", f"--signal=B:USR2@{warning_s}"]

    async def look(self, name: str, tag: str, work: Path) -> str | None:
        """In the queue by name and comment, then in the books, where a job stays."""
        for row in await self._known(name):
            if row.name == name and row.tag == tag:
                return row.local_id
        traits = await self.traits()
        if not traits.books:
            return await self._completed_in(name, work)
        said = await self._sacct(f"--name={name}", "--starttime=now-30days")
        return books.by_name(books.parse_sacct(said.out), name, tag, str(work))

    # Looking ------------------------------------------------------------------------------------

    async def rows(self, age_max_s: float = 0.0) -> tuple[queue.QueueRow, ...]:
        """The whole queue, of everybody, not older than that: one call, whoever asks."""
        async with self._looking:
            now_s = asyncio.get_running_loop().time()
            if not self._rows or now_s - self._rows[0] > age_max_s:
                self._rows = (now_s, await self._waiting_or_running())
            return self._rows[1]

    async def _waiting_or_running(self) -> tuple[queue.QueueRow, ...]:
        return queue.parse_queue((await self._squeue("--all")).out)

    async def _known(self, name: str) -> tuple[queue.QueueRow, ...]:
        """All jobs of this name the controller knows, ended ones too."""
        said = await self._squeue("--states=all", f"--name={name}")
        return queue.parse_queue(said.out)

    async def queue(self) -> tuple[Queued, ...]:
        """Ours: those with a comment of ours."""
        rows = await self.rows()
        return tuple(_queued(row) for row in rows if row.comment.startswith("tradewind:"))

    async def books(self, local_ids: Collection[str]) -> tuple[Account, ...]:
        """From sacct; without accounting from the controller, and what that has forgotten from the
        file of completed jobs where there is one: one call for all jobs either way."""
        traits = await self.traits()
        ids = ",".join(sorted(local_ids))
        if traits.books:
            said = await self._sacct(f"--jobs={ids}", "--starttime=1970-01-02")
            jobs = books.parse_sacct(said.out)
        else:
            shown = await self._run(["scontrol", "-o", "show", "job", ids], self._env)
            jobs = books.parse_show_job(shown.out)
            jobs += await self._completed(set(local_ids) - {job.local_id for job in jobs})
        return tuple(_account(job) for job in jobs)

    async def _completed(self, local_ids: Collection[str]) -> tuple[JobAccount, ...]:
        path = self.limits.completions if self.limits is not None else ""
        if not path or not local_ids:
            return ()
        try:
            return await asyncio.to_thread(completions.completed, Path(path), local_ids)
        except OSError as problem:
            raise SchedulerUnavailable(f"{path} cannot be read: {problem}") from problem

    async def _completed_in(self, name: str, work: Path) -> str | None:
        path = self.limits.completions if self.limits is not None else ""
        if not path:
            return None
        with contextlib.suppress(OSError):  # it may be on another host: then nobody knows more
            job = await asyncio.to_thread(completions.completed_in, Path(path), name, str(work))
            return job.local_id if job else None
        return None

    # Acting -------------------------------------------------------------------------------------

    async def stop(self, local_ids: Collection[str]) -> None:
        """See the port. With a state asked for scancel takes a waiting element for its whole
        array (22.05), so elements are told by a signal only."""
        ids = sorted(local_ids)
        whole = [local_id for local_id in ids if "_" not in local_id]
        if whole:
            await self._act("scancel", "--state=PENDING", *whole)
        await self._act("scancel", "--batch", "--signal=TERM", *ids)

    async def remove(self, local_id: str, indices: Runs | None = None) -> None:
        """See the port."""
        await self._act("scancel", f"{local_id}_[{indices}]" if indices else local_id)

    async def widen(self, local_id: str, width: int) -> None:
        """See the port: a part that may run nothing is held by its user, and released again."""
        if width == 0:
            await self._act("scontrol", "hold", local_id)
            return
        await self._act("scontrol", "update", f"JobId={local_id}", f"ArrayTaskThrottle={width}")
        await self._act("scontrol", "release", local_id)

    # Clients ------------------------------------------------------------------------------------

    async def _squeue(self, *arguments: str) -> Answer:
        return await self._ask("squeue", "--noheader", f"--format={queue.FORMAT}", *arguments)

    async def _sacct(self, *arguments: str) -> Answer:
        fields = ",".join(books.FIELDS)
        form = ("--noheader", "--parsable2", f"--format={fields}")
        return await self._ask("sacct", *form, *arguments)

    async def _act(self, *argv: str) -> None:
        """Do something to jobs that may be gone by now."""
        answer = await self._run(argv, self._env)
        if answer.code and any(words in answer.err for words in UNREACHABLE):
            raise SchedulerUnavailable(answer.said)

    async def _ask(self, *argv: str) -> Answer:
        answer = await self._run(argv, self._env)
        if answer.code:
            raise SchedulerUnavailable(f"{argv[0]}: {answer.said}")
        return answer

    async def _run(self, argv: Sequence[str], env: Mapping[str, str]) -> Answer:
        try:
            answer = await run_client(argv, env, self._site.within_s)
        except ClientSilent as problem:
            raise SchedulerUnavailable(str(problem)) from problem
        if answer.code and any(words in answer.err for words in UNREACHABLE):
            raise SchedulerUnavailable(answer.said)
        return answer


def _given(name: str, value: str) -> list[str]:
    return [f"--{name}={value}"] if value else []


def _elements(job: Submission) -> list[str]:
    if job.indices is None:
        return []
    held = [] if job.width else ["--hold"]
    return [f"--array={job.indices}%{max(1, job.width)}", *held]


def _queued(row: queue.QueueRow) -> Queued:
    live = Live.UNKNOWN
    if row.pending:
        live = Live.PENDING
    elif row.runs:
        live = Live.RUNNING
    indices = SINGLE if row.indices is None else row.indices
    return Queued(row.local_id, row.tag, indices, live, row.text, pack=bool(row.members))


def _account(job: books.JobAccount) -> Account:
    text = ""
    outcome: Outcome | None = None
    if job.state in states.SUCCEEDED | states.FAILED:
        outcome = outcome_of(job.code)
        if 0 < job.signal <= SIGNALS_MAX:
            outcome = Outcome(OutcomeKind.SIGNALLED, signal=job.signal)
    else:
        for some, kind in _ENDS.items():
            if job.state in some:
                outcome, text = Outcome(kind), f"Slurm says {job.state_text}"
    return Account(
        local_id=job.local_id,
        index=job.index,
        outcome=outcome,
        text=text,
        started_ms=job.started_s * 1000,
        ended_ms=job.ended_s * 1000,
        cpu_ms=job.cpu_ms,
        max_rss_bytes=job.max_rss_bytes,
    )
