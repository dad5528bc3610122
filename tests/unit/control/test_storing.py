"""Decisions of a running broker are stored and, decided again, are the same."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.control.cycle import Decided
from broker.control.storing import (
    WAITING_MAX,
    Decision,
    DecisionKeeper,
    answer_without_nodes,
    build_facts,
    packed,
)
from broker.decide.decision import Budget, decide, decide_floor
from broker.decide.gain import gain_over
from broker.decide.problem_file import parse_problem, problem_from_json
from broker.decide.replay import differences, possible_causes
from broker.feedback.backends.memory import MemoryDecisions
from broker.feedback.ports import LedgerBatch
from federation.system import SystemClock
from tests.unit.control.federation import Federation, Site
from tests.unit.control.test_policies_at_work import submit
from tests.unit.decide.problems import a_job, a_pool, a_problem


def a_decision(cycle: str = "1.1", notes: tuple[str, ...] = ()) -> Decision:
    problem = problem_from_json(a_problem(jobs=[a_job(f"j{n}", count=5) for n in range(6)]))
    plan = replace(decide(problem, Budget(cpu_s=1)), notes=notes)
    return Decision(cycle, 1_700_000_000_000, 7, problem, Decided(plan, 0.25, 1.0))


def read(body: bytes) -> Any:
    return json.loads(gzip.decompress(body))


async def test_every_cycle_of_a_broker_can_be_decided_again(tmp_path: Path) -> None:
    """What `tradewind replay` does, over the cycles of a real queue with real waiting jobs."""
    fed = await Federation.make(
        tmp_path, Site("us-east", 4, price_usd=0.05), Site("eu-west", 4, price_usd=0.09)
    )
    decisions = MemoryDecisions()
    fed.backends = replace(fed.backends, decisions=decisions)
    await fed.start()
    try:
        for site in fed.sites.sites.values():
            site.hold = True
        await submit(fed, 12)
        await submit(fed, 1, placement={"regions": ["eu-west"]})
        stored: list[Any] = []
        for _ in range(300):
            stored = [item.cycle for item in await decisions.stored()]
            bodies = [await decisions.get(cycle) for cycle in stored]
            if any(read(body)["recorded"]["answer"]["unplaced"] for body in bodies if body):
                break
            await asyncio.sleep(0.02)
        assert stored
        for cycle in stored:
            body = await decisions.get(cycle)
            assert body is not None
            problem = parse_problem(gzip.decompress(body))
            recorded = read(body)["recorded"]
            assert recorded["cycle"] == cycle and recorded["build"] == build_facts()
            answer = answer_without_nodes(problem, decide(problem, Budget(cpu_s=1.0)), 0.0)
            assert differences(recorded["answer"], answer) == []
    finally:
        await fed.kill()
        await fed.sites.close()


def test_a_plan_that_differs_is_told_by_name() -> None:
    decision = a_decision()
    recorded = read(packed(decision, build_facts()))["recorded"]
    floor = decide_floor(problem_from_json(a_problem(jobs=[a_job("j0", count=3)])))
    found = differences(recorded["answer"], answer_without_nodes(decision.problem, floor, 0.0))
    told = {item.what: (item.recorded, item.now) for item in found}
    assert told["status"] == ("optimal", "floor")
    assert told["assignments: j0"] == ("5 copies in p0", "3 copies in p0")
    assert told["assignments: j1"] == ("5 copies in p0", "none")
    other = {**build_facts(), "ortools": "1.0"}
    causes = possible_causes({**recorded, "notes": ["the solver died"]}, other)
    assert causes == [
        f"ortools was {build_facts()['ortools']}, here it is 1.0",
        "recorded with the note: the solver died",
    ]


def test_a_gap_and_an_alarm_are_why_a_decision_is_kept() -> None:
    plan = a_decision().decided.plan
    far = replace(plan, bound_usd=plan.objective_usd + 1.0)
    assert a_decision().why == ""
    assert a_decision(notes=("a solver died",)).why == "alarm"
    assert replace(a_decision(), decided=Decided(far, 0.0)).why == "gap"


async def test_when_cycles_come_too_fast_ordinary_ones_are_passed_over() -> None:
    """Lesson of controllers that drown in their own records: what is kept is bounded, and what
    matters stays."""
    store = MemoryDecisions()
    keeper = DecisionKeeper(store, SystemClock())
    keeper.keep(a_decision("1.1", notes=("a solver died",)), lambda batch: None)
    for number in range(2, 30):
        keeper.keep(a_decision(f"1.{number}"), lambda batch: None)
    await keeper.settled()
    kept = {item.cycle: item.why for item in await store.stored()}
    assert len(kept) == WAITING_MAX and keeper.passed_over == 29 - WAITING_MAX
    assert kept["1.1"] == "alarm" and "1.29" in kept


@pytest.mark.parametrize("closed", [True, False])
def test_what_was_stored_says_why_a_place_was_closed(*, closed: bool) -> None:
    shut = {"unusable": {"code": "paused", "subject": "c0"}} if closed else {}
    problem = problem_from_json(a_problem(pools=[a_pool(**shut)]))
    decided = Decided(decide(problem, Budget(cpu_s=1)), 0.0, 1.0)
    again = parse_problem(gzip.decompress(packed(Decision("1.1", 1, 1, problem, decided), {})))
    assert (again.pools[0].unusable is not None) is closed


# What the solver gains ----------------------------------------------------------------------------


def greedy_is_fooled() -> Decision:
    """The oldest job takes the cheap pool, which is the only one the others may use."""
    pools = [
        a_pool("cheap", free_nodes={"8": 1}, price_usd_per_accelerator_hour=1.0),
        a_pool("dear", cluster="c1", free_nodes={"8": 1}, price_usd_per_accelerator_hour=1.5),
    ]
    jobs = [
        a_job("old", accelerators_per_replica=8),
        *(a_job(f"young{n}", regions=["east"], accelerators_per_replica=4) for n in range(2)),
    ]
    clusters = [{"name": "c0", "region": "east"}, {"name": "c1", "region": "west"}]
    problem = problem_from_json(a_problem(pools=pools, jobs=jobs, clusters=clusters))
    return Decision("1.1", 1_000, 1, problem, Decided(decide(problem, Budget(cpu_s=1)), 0.0))


def test_what_a_plan_gains_is_told_for_the_same_work() -> None:
    decision = greedy_is_fooled()
    floor = decide_floor(decision.problem)
    gain = gain_over(decision.problem, decision.decided.plan, floor)
    assert (gain.copies, gain.accelerators) == (3, 16)
    assert (gain.floor_copies, gain.floor_accelerators) == (1, 8)
    assert (gain.more_copies, gain.fewer_copies) == (2, 0)
    assert gain.saved_usd == pytest.approx(-4.0), "the old one pays for it"
    same = gain_over(decision.problem, floor, floor)
    assert (same.more_copies, same.fewer_copies, same.saved_usd, same.sooner_s) == (0, 0, 0, 0)


def test_cheaper_and_sooner_places_for_the_same_copies_are_what_is_saved() -> None:
    clusters = [
        {"name": "c0", "region": "east", "start_delay_s": 60},
        {"name": "c1", "region": "east", "start_delay_s": 10},
    ]
    pools = [a_pool(), a_pool("p1", cluster="c1", price_usd_per_accelerator_hour=0.25)]
    problem = problem_from_json(
        a_problem(pools=pools, clusters=clusters, jobs=[a_job(count=4)])
    )
    plan = decide(problem, Budget(cpu_s=1))
    dear = replace(plan, assignments=(replace(plan.assignments[0], pool="p0"),), cost_usd=4.0)
    gain = gain_over(problem, plan, dear)
    assert (gain.copies, gain.floor_copies, gain.more_copies) == (4, 4, 0)
    assert gain.saved_usd == pytest.approx(3.0) and gain.sooner_s == pytest.approx(200.0)


async def test_gains_reach_the_ledger_with_the_least_that_others_would_have_waited() -> None:
    written: list[LedgerBatch] = []
    keeper = DecisionKeeper(MemoryDecisions(), SystemClock())
    decision = greedy_is_fooled()
    keeper.keep(decision, written.append)
    keeper.keep(replace(decision, cycle="1.2", at_ms=1_700), written.append)
    await keeper.settled()
    async with asyncio.timeout(10):
        while not written:
            await asyncio.sleep(0.01)
    (gain,) = written[0].gains
    assert (gain.cycle, gain.at_ms) == ("1.1", 1_000)
    assert gain.wait_saved_ms == (gain.more_copies - gain.fewer_copies) * 700
