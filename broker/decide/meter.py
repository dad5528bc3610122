"""What is left of a budget, in estimated CPU seconds.

No clock is read: every stage charges what its work is known to take per unit, so that the same
problem is decided the same way on every machine, fast or slow, busy or idle.
"""

from __future__ import annotations

from broker.decide.solver import Effort

DETERMINISTIC_PER_CPU_S = 0.24
"""CP-SAT's deterministic time that takes about one CPU second."""
_WHOLE_PER_CPU_S = 0.18
"""The same for models of thousands of columns, at most."""
SMALL, MIDDLING = 2_000, 20_000
"""Options up to which a problem is small: nothing but its whole model is looked at, which is to be
proved, and takes less time than is reckoned. Of larger ones, those whose whole model is looked at
as well."""
_SHARES = ((SMALL, 0.94), (MIDDLING, 0.85))
_SHARE_LARGE = 0.8
"""Of a budget, what is spent by these estimates: they may be that much too low, and more so where
the caches do not hold what is worked on."""
_OPTION_S = 0.3e-6
_CLASS_S = 20e-6
_POOL_S = 24e-6
_SIMPLEX_S = 1.25e-8
"""Per iteration and row."""
_PRICING_S = 60e-9
"""Per option, for looking at all of them once at some prices."""
_LOADING_S = 0.1
"""Loading the solvers, once in a process."""
_FLOORS = 3
_ENDING = 2.5
"""The packing, the reasons and the verifier take about as long as so many greedy passes."""


class Meter:
    """Charged by the stages of one decision. `left_s` is what improving may still spend: what the
    case, the floors and the ending take is set aside at once."""

    def __init__(self, cpu_s: float, wall_s: float | None, sizes: tuple[int, int, int]) -> None:
        """`sizes` are the numbers of classes, options and pools."""
        classes, options, pools = sizes
        self.wall_s = wall_s
        self.pass_s = classes * _CLASS_S + pools * _POOL_S
        building_s = options * _OPTION_S + classes * _CLASS_S + pools * _POOL_S
        share = next((share for most, share in _SHARES if options <= most), _SHARE_LARGE)
        self.left_s = share * cpu_s - _LOADING_S - building_s - (_FLOORS + _ENDING) * self.pass_s
        self.pricing_s = options * _PRICING_S

    def charge(self, cpu_s: float) -> None:
        """Take an estimate of CPU seconds off."""
        self.left_s -= cpu_s

    def charge_simplex(self, iterations: int, rows: int) -> None:
        """Take iterations of the LP solver off."""
        self.left_s -= self.simplex_s(iterations, rows)

    def simplex_s(self, iterations: float, rows: int) -> float:
        """CPU seconds that so many iterations of the LP solver are reckoned to take."""
        return _SIMPLEX_S * iterations * rows

    def simplex_iterations(self, rows: int, cpu_s: float) -> int:
        """How many iterations take about so many CPU seconds."""
        return max(0, int(cpu_s / (_SIMPLEX_S * max(1, rows))))

    def effort(self, cpu_s: float) -> Effort:
        """CPU seconds as an effort of the integer solver on a whole model."""
        return Effort(max(0.0, cpu_s) * _WHOLE_PER_CPU_S, self.wall_s)

    def charge_solver(self, deterministic: float, *, whole: bool = False) -> None:
        """Take deterministic time of the integer solver off."""
        rate = _WHOLE_PER_CPU_S if whole else DETERMINISTIC_PER_CPU_S
        self.left_s -= deterministic / rate
