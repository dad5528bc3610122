"""The one door to OR-Tools: solve rows with CP-SAT.

The model is written straight into the protocol buffer, which is many times faster than building
expressions. The library is loaded on the first solve, not on import.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from broker.decide.model import Model
from broker.decide.solver import Answer, Effort, SolverStatus

_LARGEST = 2**62
_SEED = 20_261


def solve(
    model: Model, objective: Mapping[int, int], hint: Mapping[int, int], effort: Effort
) -> Answer:
    """Maximise `sum(objective[column] * column)`. `hint` gives values by column.

    Deterministic for a given effort without wall limit. Never raises for a model: one that the
    solver cannot take is answered with `SolverStatus.FAILED`.
    """
    if not _is_safe(model, objective):
        return Answer(SolverStatus.FAILED, note="the figures are too large for the solver")
    try:
        # Not at the top: loading the library takes a while, and most importers never solve.
        from ortools.sat.python import cp_model_helper as library

        response = _run(library, _proto(library, model, objective, hint), effort)
    except (ImportError, RuntimeError, ValueError, TypeError, MemoryError) as error:
        return Answer(SolverStatus.FAILED, note=f"the solver failed: {error}")
    status = {
        library.CpSolverStatus.OPTIMAL: SolverStatus.OPTIMAL,
        library.CpSolverStatus.FEASIBLE: SolverStatus.FEASIBLE,
        library.CpSolverStatus.INFEASIBLE: SolverStatus.INFEASIBLE,
        library.CpSolverStatus.UNKNOWN: SolverStatus.UNKNOWN,
    }.get(response.status, SolverStatus.FAILED)
    if status in (SolverStatus.INFEASIBLE, SolverStatus.FAILED):
        return Answer(status, note=f"the solver called the model {response.status.name}")
    bound = -int(response.inner_objective_lower_bound)
    return Answer(
        status,
        values=tuple(response.solution),
        bound=bound if bound < _LARGEST else None,
        effort=response.deterministic_time,
        wall_s=response.wall_time,
    )


def load() -> None:
    """Load the library, which takes most of a second, before it is needed. Says nothing where it
    is missing: each solve does."""
    with contextlib.suppress(ImportError):
        import ortools.sat.python.cp_model_helper  # noqa: F401


def _proto(
    library: Any, model: Model, objective: Mapping[int, int], hint: Mapping[int, int]
) -> Any:
    proto = library.CpModelProto()
    add_variable = proto.variables.add
    for upper in model.upper:
        add_variable().domain.extend([0, upper])
    add_constraint = proto.constraints.add
    for row in model.rows:
        linear = add_constraint().linear
        linear.vars.extend(row.columns)
        linear.coeffs.extend(row.coefficients)
        linear.domain.extend([-_LARGEST, row.high])
    used = [(column, coefficient) for column, coefficient in objective.items() if coefficient]
    proto.objective.vars.extend([column for column, _ in used])
    proto.objective.coeffs.extend([-coefficient for _, coefficient in used])
    proto.solution_hint.vars.extend(list(hint))
    proto.solution_hint.values.extend(list(hint.values()))
    return proto


def _run(library: Any, proto: Any, effort: Effort) -> Any:
    parameters = library.SatParameters()
    parameters.num_workers = 1
    parameters.random_seed = _SEED
    parameters.max_deterministic_time = effort.deterministic
    if effort.wall_s is not None:
        parameters.max_time_in_seconds = effort.wall_s
    # A light presolve: the rest costs more than it saves on these models.
    parameters.cp_model_probing_level = 0
    parameters.symmetry_level = 0
    parameters.find_big_linear_overlap = False
    if effort.proving:
        # All rows in the linear relaxation from the start: it does most of the proving here.
        parameters.linearization_level = 2
        parameters.add_lp_constraints_lazily = False
    wrapper = library.SolveWrapper()
    wrapper.set_parameters(parameters)
    return wrapper.solve(proto)


def _is_safe(model: Model, objective: Mapping[int, int]) -> bool:
    """Whether no sum can overflow the solver's whole numbers."""
    upper = model.upper
    if max(upper, default=0) >= _LARGEST:
        return False
    sums = [sum(abs(a) * upper[c] for c, a in objective.items())]
    sums += [
        sum(abs(a) * upper[c] for c, a in zip(row.columns, row.coefficients, strict=True))
        + abs(row.high)
        for row in model.rows
    ]
    return max(sums) < _LARGEST
