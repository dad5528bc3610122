"""Every decision is stored with its problem, so that anyone with the file can decide it again.

Storing never holds a cycle up and costs at most a fifth of one core: when cycles come faster than
that, those without a gap and without an alarm are passed over, and counted.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from platform import machine, python_version
from typing import Any

from broker.control.cycle import Decided
from broker.decide.answer import plan_to_json
from broker.decide.problem_json import problem_to_json
from broker.feedback.decisions import DecisionStore
from broker.feedback.ports import FeedbackUnavailable
from broker.model.plan import Plan, PlanStatus
from broker.model.problem import Problem
from federation.environment import Clock
from federation.units import format_utc

GAP_KEPT = 0.01
"""A decision known to be no nearer to the best than this is kept longer than others."""
WAITING_MAX = 4
RESTS = 4.0
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


class DecisionKeeper:
    """Stores decisions in the background, one at a time."""

    def __init__(self, store: DecisionStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._build = build_facts()
        self._waiting: deque[Decision] = deque()
        self._task: asyncio.Task[None] | None = None
        self.passed_over = 0

    def keep(self, decision: Decision) -> None:
        """Store it when there is time. Where too many wait, the oldest ordinary one is passed
        over."""
        self._waiting.append(decision)
        if len(self._waiting) > WAITING_MAX:
            plain = next((item for item in self._waiting if not item.why), self._waiting[0])
            self._waiting.remove(plain)
            self.passed_over += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def settled(self) -> None:
        """Wait until nothing waits."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        while self._waiting:
            decision = self._waiting.popleft()
            began_s = self._clock.monotonic_s()
            try:
                body = await asyncio.to_thread(packed, decision, self._build)
                await self._store.put(decision.cycle, decision.why, body)
            except (FeedbackUnavailable, ValueError) as error:
                log.warning("cycle %s is not stored: %s", decision.cycle, error)
            if self._waiting:
                await asyncio.sleep(RESTS * (self._clock.monotonic_s() - began_s))
