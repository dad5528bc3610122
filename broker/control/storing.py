"""Every decision is stored with its problem, so that anyone with the file can decide it again; and
it is measured against the greedy floor of that problem.

This never holds a cycle up and costs at most a tenth of one core: when cycles come faster than
that, those without a gap and without an alarm are passed over.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from platform import machine, python_version
from typing import Any

from broker.control.cycle import TIMER_S, Decided
from broker.decide.answer import plan_to_json
from broker.decide.decision import NoVerifiedPlan, decide_floor
from broker.decide.gain import gain_over
from broker.decide.problem_json import problem_to_json
from broker.feedback.decisions import DecisionStore
from broker.feedback.ports import FeedbackUnavailable, GainEntry, LedgerBatch
from broker.model.plan import Plan, PlanStatus
from broker.model.problem import Problem
from federation.environment import Clock
from federation.units import format_utc

GAP_KEPT = 0.01
"""A decision known to be no nearer to the best than this is kept longer than others."""
WAITING_MAX = 4
RESTS = 9.0
"""After a storing there is none for so many times as long as it took."""

log = logging.getLogger("tradewind.storing")


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """A decision to store. `at_ms` is UTC."""

    cycle: str
    at_ms: int
    revision: int
    problem: Problem
    decided: Decided

    @property
    def why(self) -> str:
        """Why it is worth more than others."""
        plan = self.decided.plan
        if plan.notes or (plan.status is PlanStatus.FLOOR and plan.assignments):
            return "alarm"
        return "gap" if plan.gap is not None and plan.gap > GAP_KEPT else ""


class _Kept:
    """A decision to store and measure, and when the next one came."""

    def __init__(self, decision: Decision, add: Callable[[LedgerBatch], None]) -> None:
        self.decision = decision
        self._add = add
        self._next: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def followed(self, at_ms: int) -> None:
        """The next decision was made."""
        if not self._next.done():
            self._next.set_result(at_ms)

    async def write(self, gain: GainEntry) -> None:
        """Write what it gained. What only the plan starts would have waited until the next cycle,
        which comes within `TIMER_S` where something waits."""
        await asyncio.wait([self._next], timeout=TIMER_S)
        wait_ms = round(TIMER_S * 1000)
        if self._next.done():
            wait_ms = min(max(self._next.result() - self.decision.at_ms, 0), wait_ms)
        more = gain.more_copies - gain.fewer_copies
        self._add(LedgerBatch(gains=(replace(gain, wait_saved_ms=more * wait_ms),)))


def build_facts() -> dict[str, str]:
    """What decides here: another build may decide otherwise."""
    facts = {"python": python_version(), "machine": machine()}
    for name in ("tradewind", "ortools", "highspy", "numpy"):
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = ""
    return facts


def recorded_problem(decision: Decision, build: Mapping[str, str]) -> dict[str, Any]:
    """The problem in its public form, with what was decided under `recorded`."""
    decided, problem = decision.decided, decision.problem
    written = problem_to_json(
        replace(problem, now=format_utc(decision.at_ms), warm=decided.warm or problem.warm)
    )
    written["recorded"] = {
        "cycle": decision.cycle,
        "at": format_utc(decision.at_ms),
        "revision": decision.revision,
        "why_kept": decision.why,
        "budget_s": decided.budget_s,
        "build": dict(build),
        "notes": list(decided.plan.notes),
        "answer": answer_without_nodes(problem, decided.plan, decided.cpu_s),
    }
    return written


def answer_without_nodes(problem: Problem, plan: Plan, cpu_s: float) -> dict[str, Any]:
    """The public answer less the nodes and the prices: what two decisions are compared by."""
    bare = replace(plan, fills=(), charged_as_packed=(), prices=None)
    answer = plan_to_json(problem, bare, round(cpu_s, 6))
    answer.pop("packing", None)
    return answer


def packed(decision: Decision, build: Mapping[str, str]) -> bytes:
    """The gzip file of a decision."""
    text = json.dumps(recorded_problem(decision, build), separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), compresslevel=1, mtime=0)


def measured_gain(decision: Decision) -> GainEntry:
    """What it gained over the floor; how long others would have waited is not known here."""
    plan = decision.decided.plan
    floor = decide_floor(decision.problem)
    gain = gain_over(decision.problem, plan, floor)
    return GainEntry(
        cycle=decision.cycle,
        at_ms=decision.at_ms,
        copies=gain.copies,
        floor_copies=gain.floor_copies,
        accelerators=gain.accelerators,
        floor_accelerators=gain.floor_accelerators,
        more_copies=gain.more_copies,
        fewer_copies=gain.fewer_copies,
        cost_micro_usd=round(gain.cost_usd * 1e6),
        floor_cost_micro_usd=round(gain.floor_cost_usd * 1e6),
        saved_micro_usd=round(gain.saved_usd * 1e6),
        sooner_ms=round(gain.sooner_s * 1e3),
        wait_saved_ms=0,
    )


class DecisionKeeper:
    """Stores and measures decisions in the background, one at a time."""

    def __init__(self, store: DecisionStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._build = build_facts()
        self._waiting: deque[_Kept] = deque()
        self._task: asyncio.Task[None] | None = None
        self._last: _Kept | None = None
        self._measured: set[asyncio.Task[None]] = set()
        self.passed_over = 0

    def keep(self, decision: Decision, add: Callable[[LedgerBatch], None]) -> None:
        """Store it when there is time, and `add` what it gained to the ledger. Where too many
        wait, the oldest ordinary one is passed over."""
        if self._last is not None:
            self._last.followed(decision.at_ms)
        self._last = _Kept(decision, add)
        self._waiting.append(self._last)
        if len(self._waiting) > WAITING_MAX:
            waiting = self._waiting
            plain = next((item for item in waiting if not item.decision.why), waiting[0])
            waiting.remove(plain)
            self.passed_over += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def settled(self) -> None:
        """Wait until nothing waits."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        while self._waiting:
            kept = self._waiting.popleft()
            decision, began_s = kept.decision, self._clock.monotonic_s()
            try:
                body = await asyncio.to_thread(packed, decision, self._build)
                await self._store.put(decision.cycle, decision.why, body)
                gain = await asyncio.to_thread(measured_gain, decision)
                task = asyncio.create_task(kept.write(gain))
                self._measured.add(task)
                task.add_done_callback(self._measured.discard)
            except (FeedbackUnavailable, NoVerifiedPlan, ValueError) as error:
                log.warning("cycle %s is not stored or measured: %s", decision.cycle, error)
            if self._waiting:
                await asyncio.sleep(RESTS * (self._clock.monotonic_s() - began_s))
