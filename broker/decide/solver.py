"""The port of an integer solver: what deciding asks of it. `cpsat.solve` is the real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from broker.decide.model import Model


class SolverStatus(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a solve may take: in the solver's deterministic time, and on the wall (None = for
    ever; with a wall limit answers may differ from run to run). `proving` puts more into bounds
    than a solve does that only looks for something better."""

    deterministic: float
    wall_s: float | None = None
    proving: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """`values` per column (empty without a solution), `bound` an upper bound on the objective or
    None, `effort` the deterministic time and `wall_s` the time on the wall that were spent."""

    status: SolverStatus
    values: tuple[int, ...] = ()
    bound: int | None = None
    effort: float = 0.0
    wall_s: float = 0.0
    note: str = ""


Solve = Callable[[Model, Mapping[int, int], Mapping[int, int], Effort], Answer]
"""(model, objective to maximise by column, hint by column, effort) -> answer."""


def no_solver(
    model: Model, objective: Mapping[int, int], hint: Mapping[int, int], effort: Effort
) -> Answer:
    """Stands where an integer solver is asked for and none is to be used."""
    return Answer(SolverStatus.FAILED, note="no solver was used")
