"""Every constraint has all its parts, and a place in the brute force."""

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
BRUTE_FORCES = [
    HERE.parents[2] / "properties" / name
    for name in ("test_decide_brute_force.py", "test_gangs_brute_force.py")
]
BY_CALLER = {"usable", "exclusion"}
"""Their reasons are a caller's: they have no code of their own."""
KEYS = {
    "model": "accelerators",
    "spot": "spot_ok",
    "region": "regions",
    "round trip": "max_rtt_ms",
    "deadline": "deadline_h",
    "budget": "budget_usd",
    "price cap": "max_price_usd_per_accelerator_hour",
    "node shape": "accelerators_per_node",
    "capacity": "free_accelerators",
    "cpus": "free_cpus",
    "memory": "free_memory_gib",
    "tenant quota": "quota_accelerators",
    "cluster quota": "cluster_quota",
    "queue": "max_pending",
    "later": "later",
    "topology": "topology",
    "rack": "domain",
    "one rack": "topology_usd",
    "several pools": "several_pools",
    "one per node": "one_per_node",
    "extras": "extras",
    "spread": "spread_max_per_cluster",
    "apart": "apart",
    "apart region": "apart_region",
    "maintenance": "maintenance",
    "accelerator memory": "accelerator_memory_gib",
}
"""The key of the public form that each constraint reads: the brute force draws and reads it too."""


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


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda constraint: constraint.name)
def test_a_constraint_is_in_the_brute_force(constraint: PairConstraint | SharedConstraint) -> None:
    if constraint.name in BY_CALLER:
        assert not constraint.codes
        return
    assert constraint.codes
    strings = [
        node.value
        for path in BRUTE_FORCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert strings.count(KEYS[constraint.name]) >= 2, "drawn and judged"


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
