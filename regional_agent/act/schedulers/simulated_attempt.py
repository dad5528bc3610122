"""An attempt at the simulated scheduler, and what its order says of how it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.runs import Runs
from regional_agent.act.schedulers.port import (
    LaunchOrder,
    LocalState,
    Outcome,
    OutcomeKind,
    Phase,
    TaskStates,
    Usage,
)

_GRAVEST = (
    OutcomeKind.FENCED,
    OutcomeKind.CANCELLED,
    OutcomeKind.LOST,
    OutcomeKind.OUT_OF_MEMORY,
    OutcomeKind.TIMED_OUT,
    OutcomeKind.SIGNALLED,
    OutcomeKind.FAILED,
)


@dataclass(slots=True)
class SimRunning:
    """A task that runs."""

    lane: int
    since_s: float
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class SimAttempt:
    """All of an attempt."""

    order: LaunchOrder
    submitted_ms: int
    unstarted: Runs
    width: int
    phase: Phase = Phase.QUEUED
    running: dict[int, SimRunning] = field(default_factory=dict)
    ended: dict[Outcome, Runs] = field(default_factory=dict)
    started_ms: int = 0
    ended_ms: int = 0
    outcome: Outcome | None = None
    wall_ms: int = 0
    stopping: bool = False
    waiting: bool = False
    timer: asyncio.TimerHandle | None = None
    contact_s: float = 0.0
    fence: asyncio.TimerHandle | None = None

    @property
    def begun(self) -> Runs:
        """Tasks that have started, over or not."""
        found = Runs.of((task, task) for task in self.running)
        for tasks in self.ended.values():
            found = found.union(tasks)
        return found

    def state(self) -> LocalState:
        """As the port tells it."""
        running = Runs.of((task, task) for task in self.running)
        return LocalState(
            uid=self.order.uid,
            phase=self.phase,
            tasks=TaskStates(self.unstarted, running, tuple(self.ended.items())),
            submitted_ms=self.submitted_ms,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            outcome=self.outcome,
            usage=Usage(self.wall_ms, self.wall_ms),
        )


def cards_of(order: LaunchOrder) -> set[tuple[str, int, int]]:
    """(pool, node, card) of all its places."""
    return {(p.pool, p.node, card) for p in order.places for card in p.accelerators}


def program_of(order: LaunchOrder) -> tuple[float, Outcome]:
    """How long a task runs and how it ends, as its argv says."""
    _, seconds, *rest = order.argv
    code = int(rest[0]) if rest else 0
    kind = OutcomeKind.FAILED if code else OutcomeKind.SUCCEEDED
    return float(seconds), Outcome(kind, code)


def gravest_of(ended: Mapping[Outcome, Runs]) -> Outcome:
    """The outcome of the whole, from those of its tasks."""
    for kind in _GRAVEST:
        for outcome in ended:
            if outcome.kind is kind:
                return outcome
    return Outcome(OutcomeKind.SUCCEEDED)
