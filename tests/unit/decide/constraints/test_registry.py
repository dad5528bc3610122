"""Every constraint has all its parts. That the brute forces judge each of them is in
tests/properties/test_brute_forces_judge.py."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from broker.decide import constraints
from broker.decide.constraints import CONSTRAINTS, PAIR_CONSTRAINTS
from broker.decide.constraints.constraint import PairConstraint, SharedConstraint
from broker.decide.objective import TERMS, CostTerms

HERE = Path(__file__).parent
MODULES = Path(constraints.__file__).parent
NOT_ONE = {"__init__", "constraint", "pool_total", "by_cluster"}


def test_each_module_is_one_constraint_and_each_constraint_is_listed() -> None:
    modules = {path.stem for path in MODULES.glob("*.py")} - NOT_ONE
    assert modules == {constraint.name.replace(" ", "_") for constraint in CONSTRAINTS}
    names = [constraint.name for constraint in CONSTRAINTS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda constraint: constraint.name)
def test_a_constraint_has_a_test_of_its_own(constraint: PairConstraint | SharedConstraint) -> None:
    path = HERE / f"test_{constraint.name.replace(' ', '_')}.py"
    told = path.read_text()
    for part in ("options_of(", "violations_of(", "reason_for(", "change_for("):
        assert part in told, f"{path.name} does not judge {part[:-1]}"


def test_no_two_constraints_refuse_with_one_code() -> None:
    codes = [code for constraint in CONSTRAINTS for code in constraint.codes]
    assert len(codes) == len(set(codes))


def test_the_model_comes_before_what_depends_on_its_speed() -> None:
    names = [constraint.name for constraint in PAIR_CONSTRAINTS]
    assert names.index("model") < min(names.index("deadline"), names.index("budget"))


def test_every_cost_term_is_shown() -> None:
    assert [term.name for term in TERMS] == [*CostTerms.__dataclass_fields__]


def test_what_checks_a_plan_shares_nothing_with_what_makes_it() -> None:
    """`check` and `amount` take no arrays; `mask`, `most` and `column` no single job."""
    for path in [*MODULES.glob("*.py"), *(MODULES.parent / "objective").glob("*.py")]:
        tree = ast.parse(path.read_text())
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            if function.name in ("_check", "_amount"):
                assert not used & {"np", "PairFigures", "times", "floats"}, path.name
            if function.name in ("_mask", "_most", "_column"):
                assert not used & {"Geography", "within", "places"}, path.name
