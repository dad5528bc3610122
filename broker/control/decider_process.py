"""Decide in processes of their own: what a solver does to its process does not matter here.

One process decides. Another decides the same problems cold, in its own time and behind all others,
for the sake of the prices: a decision follows the last prices, so that no linear relaxation is
solved while jobs wait. It is there only while it looks for prices, which small problems never need.

When the deciding process dies, hangs or answers nonsense it is ended, the floor is decided here in
a thread, and the plan carries the alarm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO

from broker.control.cycle import Decided
from broker.control.decider_frames import (
    HEADER_BYTES,
    Question,
    Reply,
    body_bytes,
    packed,
    unpacked,
)
from broker.decide.decision import NoVerifiedPlan, decide_floor
from broker.model.plan import Plan
from broker.model.prices import Prices
from broker.model.problem import Problem
from broker.model.warm import Warm

log = logging.getLogger("tradewind.decide")

WORKER = (sys.executable, "-m", "broker.control.decider_worker")
_BEHIND = "10"
"""Niceness of the process that looks for prices."""
_LARGEST_BYTES = 1 << 30


class WorkerFailed(RuntimeError):
    """The deciding process gave no answer; `str` says why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """CPU seconds of a decision and of one for prices; on the wall the process is given up after
    `patience` times that and `grace_s`. Prices are looked for again once a share `turnover` of the
    jobs is others than when they were found."""

    decide_cpu_s: float = 1.0
    price_cpu_s: float = 10.0
    patience: float = 5.0
    grace_s: float = 10.0
    turnover: float = 0.1


class Worker:
    """One process that answers one question at a time; started when first asked, and again after
    it was given up."""

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decider")

    async def ask(self, question: Question, wall_s: float) -> Reply:
        """The answer, within `wall_s` seconds. Raises `WorkerFailed`; the process is then gone."""
        async with self._turn:
            try:
                async with asyncio.timeout(wall_s):
                    return await self._exchange(question)
            except TimeoutError:
                await self.stop()
                raise WorkerFailed(f"no answer within {wall_s:g} s") from None
            except (OSError, EOFError, pickle.UnpicklingError, asyncio.CancelledError) as error:
                code = None if self._process is None else self._process.poll()
                await self.stop()
                if isinstance(error, asyncio.CancelledError):
                    raise
                ended = "" if code is None else f" (exit code {code})"
                raise WorkerFailed(f"the process ended{ended}") from error

    async def _exchange(self, question: Question) -> Reply:
        if self._process is not None and self._process.poll() is not None:
            raise EOFError  # it ended since the last answer
        if self._process is None:
            # Not by the event loop: what a loop in C does between fork and exec beside the threads
            # of gRPC may wait for ever; this does nothing there.
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _asked, self._process, question)

    async def stop(self) -> None:
        """End the process, if there is one; whoever still waits for its answer gets none."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(_end, process)


def _asked(process: subprocess.Popen[bytes], question: Question) -> Reply:
    """The answer to a question. Raises EOFError, OSError, UnpicklingError."""
    sink, source = process.stdin, process.stdout
    if sink is None or source is None:
        raise EOFError
    sink.write(packed(question))
    sink.flush()
    size = body_bytes(_exactly(source, HEADER_BYTES))
    if size > _LARGEST_BYTES:
        raise EOFError
    reply = unpacked(_exactly(source, size))
    if not isinstance(reply, Reply):
        raise EOFError
    return reply


def _exactly(source: IO[bytes], size: int) -> bytes:
    found = source.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was never read is lost with its reader
                pipe.close()


@dataclass(slots=True)
class _Found:
    """Prices and the jobs they were found for."""

    prices: Prices
    jobs: frozenset[str] = field(default_factory=frozenset)


class ProcessDecider:
    """A `Decider` (see `broker.control.cycle`) over two such processes."""

    def __init__(self, limits: Limits, command: Sequence[str] = WORKER) -> None:
        self._limits = limits
        self._decider = Worker(command)
        self._pricer = Worker((*command, _BEHIND))
        self._found: _Found | None = None
        self._pricing: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the deciding process, so that the first decision need not wait for it."""
        self._starting = asyncio.create_task(self._get_ready())

    async def _get_ready(self) -> None:
        with contextlib.suppress(WorkerFailed):  # the first decision will say so
            await self._decider.ask(Question(None, 0.0), self._wall_s(self._limits.decide_cpu_s))

    async def __call__(self, problem: Problem) -> Decided:
        """A verified plan, in the worst case the floor with a note. Raises `NoVerifiedPlan`."""
        warm = None if self._found is None else Warm(prices=self._found.prices)
        cpu_s = self._limits.decide_cpu_s
        decided = await self._decide(Question(problem, cpu_s, warm, in_line=True))
        self._look_for_prices(problem, decided.plan)
        return decided

    async def aside(self, problem: Problem) -> Decided:
        """The same for a problem that is none of the line of cycles, such as that of a dry run: it
        is no reason to look for prices. Raises `NoVerifiedPlan`."""
        return await self._decide(Question(problem, self._limits.decide_cpu_s))

    async def _decide(self, question: Question) -> Decided:
        try:
            reply = await self._decider.ask(question, self._wall_s(question.cpu_s))
        except WorkerFailed as error:
            alarm = f"the deciding process failed: {error}; the floor is in force"
            log.error("%s", alarm)
            return await asyncio.to_thread(_floor, question.problem, alarm)
        if reply.plan is None:
            raise NoVerifiedPlan(reply.failure)
        return Decided(reply.plan, reply.cpu_s, question.cpu_s, question.warm)

    def _wall_s(self, cpu_s: float) -> float:
        return self._limits.patience * cpu_s + self._limits.grace_s

    async def close(self) -> None:
        """End both processes."""
        tasks = [task for task in (self._starting, self._pricing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._decider.stop()
        await self._pricer.stop()

    def prices_of(self, problem: Problem) -> bool:
        """Whether the prices in use were found for nearly the same jobs."""
        if self._found is None:
            return False
        jobs = frozenset(job.id for job in problem.jobs)
        return len(jobs ^ self._found.jobs) < self._limits.turnover * max(1, len(jobs))

    def _look_for_prices(self, problem: Problem, plan: Plan) -> None:
        """Start looking, unless somebody looks already or the last prices are fresh enough. Where
        a plan has no prices the problem is too small to need any."""
        if plan.prices is None or (self._pricing is not None and not self._pricing.done()):
            return
        if self.prices_of(problem):
            return
        if self._found is None:
            self._found = _Found(plan.prices)
        self._pricing = asyncio.create_task(self._price(problem))

    async def _price(self, problem: Problem) -> None:
        cpu_s = self._limits.price_cpu_s
        try:
            reply = await self._pricer.ask(Question(problem, cpu_s), self._wall_s(cpu_s))
        except WorkerFailed as error:
            log.error("no new prices: %s", error)
            return
        finally:
            await self._pricer.stop()
        if reply.plan is not None and reply.plan.prices is not None:
            self._found = _Found(
                reply.plan.prices, frozenset(job.id for job in problem.jobs)
            )


def _floor(problem: Problem | None, alarm: str) -> Decided:
    if problem is None:
        raise NoVerifiedPlan(alarm)
    before_s = time.thread_time()
    plan = decide_floor(problem, alarm)
    return Decided(plan, time.thread_time() - before_s, failure=alarm)
