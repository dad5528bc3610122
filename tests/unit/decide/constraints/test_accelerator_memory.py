"""Memory of each accelerator."""

from __future__ import annotations

from federation.refusals import RefusalCode
from tests.unit.decide.constraints.judging import (
    change_for,
    options_of,
    problem_of,
    reason_for,
    violations_of,
)
from tests.unit.decide.problems import a_job, a_pool


def test_what_is_not_known_is_not_enough() -> None:
    problem = problem_of(
        pools=[
            a_pool(),
            a_pool("p1", accelerator_memory_gib=40),
            a_pool("p2", accelerator_memory_gib=80),
        ],
        jobs=[a_job(accelerator_memory_gib=80), a_job("any")],
    )
    assert options_of(problem) == {("j0", "p2"), *(("any", f"p{n}") for n in range(3))}
    for pool in ("p0", "p1"):
        assert "accelerator memory" in violations_of(problem, pool)
    assert "accelerator memory" not in violations_of(problem, "p2")
    reason = reason_for(problem)
    assert reason is not None and reason.code is RefusalCode.ACCELERATOR_MEMORY
    assert "memory that nobody has told" in reason.text
    assert change_for(problem, "p1") == "accelerator_memory_gib 80 -> 40"
