"""Deciding in processes of their own: whatever happens to one, there is a verified plan."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.cli.bench.instances import Size, an_instance
from broker.control.decider_frames import Question
from broker.control.decider_process import Limits, ProcessDecider, Worker, WorkerFailed
from broker.decide.problem_file import parse_problem
from broker.decide.verify import verify
from broker.model.plan import PlanStatus
from broker.model.problem import Problem
from tests.unit.decide.problems import a_job, a_problem

ABORTS = (sys.executable, "-c", "import os; os.abort()")
HANGS = (sys.executable, "-c", "import time; time.sleep(600)")
BABBLES = (sys.executable, "-c", "print('x' * 100, flush=True); import sys; sys.stdin.read()")
QUICK = Limits(decide_cpu_s=0.1, price_cpu_s=0.5, patience=1.0, grace_s=0.4)
PATIENT = Limits(decide_cpu_s=0.5, price_cpu_s=2.0, grace_s=60.0)


def small() -> Problem:
    return parse_problem(json.dumps(a_problem(jobs=[a_job(count=3)])))


@asynccontextmanager
async def a_decider(limits: Limits, *command: str) -> AsyncIterator[ProcessDecider]:
    decider = ProcessDecider(limits, command) if command else ProcessDecider(limits)
    try:
        yield decider
    finally:
        await decider.close()


async def test_a_plan_comes_back_from_the_process() -> None:
    async with a_decider(PATIENT) as decider:
        for _ in range(2):
            decided = await decider(small())
            assert decided.plan.status is PlanStatus.OPTIMAL
            assert decided.plan.placed == {0: 3} and decided.cpu_s > 0
            assert verify(small(), decided.plan) == ()


@pytest.mark.parametrize("command", [ABORTS, HANGS, BABBLES])
async def test_whatever_the_process_does_the_floor_is_in_force(command: tuple[str, ...]) -> None:
    async with a_decider(QUICK, *command) as decider:
        for _ in range(2):
            decided = await decider(small())
            assert decided.plan.status is PlanStatus.FLOOR
            assert decided.plan.placed == {0: 3}
            assert "the floor is in force" in decided.plan.notes[0]
            assert verify(small(), decided.plan) == ()


async def test_a_killed_process_is_started_again() -> None:
    worker = Worker()
    try:
        first = await worker.ask(Question(small(), 0.5), 60)
        await worker.stop()
        again = await worker.ask(Question(small(), 0.5), 60)
        assert first.plan == again.plan
    finally:
        await worker.stop()


async def test_one_that_died_between_two_questions_is_told_of_once(tmp_path: Path) -> None:
    marks = tmp_path / "pids"
    text = f"import os; open({str(marks)!r}, 'a').write(f'{{os.getpid()}} ')\n"
    text += "import runpy; runpy.run_module('broker.control.decider_worker', run_name='__main__')"
    async with a_decider(PATIENT, sys.executable, "-c", text) as decider:
        assert (await decider(small())).plan.status is PlanStatus.OPTIMAL
        os.kill(int(marks.read_text().split()[0]), signal.SIGKILL)
        await asyncio.sleep(0.5)
        told = await decider(small())
        assert told.plan.status is PlanStatus.FLOOR and told.plan.placed == {0: 3}
        assert "the process ended (exit code -9); the floor is in force" in told.plan.notes[0]
        again = await decider(small())
        assert again.plan.status is PlanStatus.OPTIMAL and not again.plan.notes
        assert len(marks.read_text().split()) == 2


async def test_what_is_decided_aside_brings_no_prices() -> None:
    problem = parse_problem(json.dumps(an_instance(Size(40, 1500, 250), 1)))
    async with a_decider(PATIENT) as decider:
        decided = await decider.aside(problem)
        assert decided.plan.prices is not None and decided.warm is None
        assert not decider.prices_of(problem)
        await decider(problem)
        await until(lambda: decider.prices_of(problem))
        assert (await decider.aside(problem)).warm is None


async def test_it_is_ready_before_it_is_asked() -> None:
    async with a_decider(PATIENT) as decider:
        decider.start()
        decided = await decider(small())
        assert decided.plan.status is PlanStatus.OPTIMAL


async def test_a_process_that_ends_says_how() -> None:
    worker = Worker(ABORTS)
    with pytest.raises(WorkerFailed, match="the process ended"):
        await worker.ask(Question(small(), 0.5), 30)


async def test_prices_are_found_beside_the_decisions() -> None:
    problem = parse_problem(json.dumps(an_instance(Size(40, 1500, 250), 1)))
    async with a_decider(PATIENT) as decider:
        first = await decider(problem)
        assert first.plan.prices is not None and first.plan.gap is not None
        await until(lambda: decider.prices_of(problem))
        second = await decider(problem)
        assert verify(problem, second.plan) == ()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.05)
