"""The one door to the LP solver: rows that stay, columns that come, prices that come back.

HiGHS by the dual simplex, on one thread. The library is loaded on the first use, not on import. No
clock is read: how long a solve may take is counted in simplex iterations, so the same columns give
the same prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from broker.decide.options import Floats, Integers
from broker.decide.relaxation import Entries


class LpFailed(RuntimeError):
    """The LP solver is missing, or gave nothing of use."""


@dataclass(frozen=True, slots=True)
class LpAnswer:
    """`values` per column in the order they were added, `prices` per row (at least 0), what was
    reached, and the simplex iterations spent. `solved` when it is the optimum over the columns:
    otherwise the values are not to be used, the prices are."""

    values: Floats
    prices: Floats
    objective: float
    iterations: int
    solved: bool


class Master:
    """Maximise over the columns added so far: `sum(value * column) <= high` for each row, every
    column between 0 and its upper limit."""

    def __init__(self, high: Floats) -> None:
        """Raises `LpFailed` when the library is missing."""
        library = _library()
        self._rows = len(high)
        self._status = library.HighsModelStatus
        self._highs = _quiet(library)
        model = library.HighsLp()
        model.num_row_ = len(high)
        model.num_col_ = 0
        model.row_lower_ = np.full(len(high), -np.inf)
        model.row_upper_ = high
        model.a_matrix_.format_ = library.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.zeros(1, dtype=np.int32)
        self._highs.passModel(model)

    def add(self, gain: Floats, upper: Floats, entries: Entries) -> None:
        """Add columns."""
        self._highs.addCols(
            len(gain),
            -gain,
            np.zeros(len(gain)),
            upper,
            len(entries.row),
            entries.start[:-1].astype(np.int32),
            entries.row.astype(np.int32),
            entries.value.astype(np.float64),
        )

    def set_gains(self, first: int, gain: Floats) -> None:
        """Change what columns from `first` on gain."""
        index = np.arange(first, first + len(gain), dtype=np.int32)
        self._highs.changeColsCost(len(gain), index, -gain)

    def set_highs(self, rows: Integers, high: Floats) -> None:
        """Change the limits of some rows."""
        lower = np.full(len(rows), -np.inf)
        self._highs.changeRowsBounds(len(rows), rows.astype(np.int32), lower, high)

    def solve(self, iterations: int) -> LpAnswer:
        """Go on from the last basis for at most so many simplex iterations. Raises `LpFailed`."""
        highs = self._highs
        highs.setOptionValue("simplex_iteration_limit", iterations)
        highs.run()
        status = highs.getModelStatus()
        if status not in (self._status.kOptimal, self._status.kIterationLimit):
            raise LpFailed(f"the LP solver ended with {highs.modelStatusToString(status)}")
        solution = highs.getSolution()
        info = highs.getInfo()
        duals = np.array(solution.row_dual, dtype=np.float64)
        if len(duals) != self._rows or not np.isfinite(duals).all():
            raise LpFailed("the LP solver gave no prices")
        return LpAnswer(
            values=np.array(solution.col_value, dtype=np.float64),
            prices=np.maximum(0.0, -duals),
            objective=-float(highs.getObjectiveValue()),
            iterations=int(info.simplex_iteration_count),
            solved=status == self._status.kOptimal,
        )


def _library() -> Any:
    try:
        # Not at the top: most importers never solve.
        import highspy

        return highspy
    except ImportError as error:
        raise LpFailed(f"the LP solver is not installed: {error}") from error


def _quiet(library: Any) -> Any:
    """A solver that prints nothing. The constructor of `Highs` itself sets up callbacks, which
    prints a banner on standard output; the one below it does not."""
    highs = library.Highs.__new__(library.Highs)
    super(library.Highs, highs).__init__()
    for name, value in (("output_flag", False), ("threads", 1), ("parallel", "off")):
        highs.setOptionValue(name, value)
    highs.setOptionValue("solver", "simplex")
    highs.setOptionValue("random_seed", 0)
    # What options cost differs enough as it is: perturbed, it takes a tenth more iterations and a
    # cleaning up.
    highs.setOptionValue("dual_simplex_cost_perturbation_multiplier", 0.0)
    return highs
