"""The least weight that gives a class its turn is exactly that: one less does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.decide.admission.admit import Scene, Standing, admit
from broker.decide.admission.shares import Past
from broker.decide.admission.turns import Turns
from broker.model.admission import AdmissionRules
from broker.model.problem import Cluster, Problem
from tests.unit.decide.admission.scenes import pool, running, scene, wish

RULES = AdmissionRules()
PLACE = "near/h100"


def turns(found: Scene, past: Past | None = None) -> Turns:
    problem = Problem(("near",), (Cluster("near", "near"),), (), ())
    return Turns(found, Standing(past or Past()), RULES, problem)


def a_queue(held: int, **rest: Any) -> Scene:
    """One free H100 of sixteen; `mine` holds so many, others the rest, and both want one more."""
    wishes = [wish("mine", id="m"), wish("others", id="o")]
    runs = [running("m-1", "mine", held), running("o-1", "others", 15 - held)]
    return scene(wishes, [pool(free=1)], running=runs, **rest)


@pytest.mark.parametrize("held", [8, 10, 14])
@pytest.mark.parametrize("weight", [1, 3])
def test_one_less_gives_no_turn(held: int, weight: int) -> None:
    found = a_queue(held, weights={"mine": float(weight)})
    needed = turns(found).least_weight(0, PLACE)
    assert needed is not None
    mine, theirs = held + 0.5, 15 - held + 0.5
    assert needed == max(weight, int(mine / theirs) + (mine % theirs > 0))
    granted = {}
    for one in (needed, needed - 1):
        tried = replace(found, weights={"mine": float(one)})
        granted[one] = admit(tried, Standing(), RULES).granted[0]
    assert granted[needed] == 1
    assert needed == weight or granted[needed - 1] == 0


def test_who_has_the_turn_already_needs_no_more() -> None:
    assert turns(a_queue(2)).least_weight(0, PLACE) == 1


def test_the_past_counts_as_it_does_in_a_cycle() -> None:
    past = Past(1, 1.0, {"mine": 0.5})
    more, less = (turns(a_queue(8), p).least_weight(0, PLACE) for p in (past, None))
    assert more is not None and less is not None and more > less


@pytest.mark.parametrize(
    "first",
    [wish("others", id="o", priority=1), wish("mine", id="mine-before")],
    ids=["a higher priority", "an older job of the same tenant"],
)
def test_no_weight_goes_before_what_comes_first_anyway(first: Any) -> None:
    found = scene([first, wish("mine", id="m"), wish("third")], [pool(free=1)])
    assert turns(found).least_weight(1, PLACE) is None


def test_a_turn_that_comes_to_nothing_there_is_none() -> None:
    """Admission counts accelerators; what is decided looks at all the rest."""
    busy = replace(pool(free=1), extras={"matlab": 0})
    licensed = wish("mine", id="m", extras_per_replica={"matlab": 1})
    found = scene([licensed, wish("others", id="o")], [busy])
    assert admit(found, Standing(), RULES).granted[0]
    assert turns(found).least_weight(0, PLACE) is None
