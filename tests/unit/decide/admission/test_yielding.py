"""Slices give back what others are due, as many as are wanted, and only to those with less."""

from __future__ import annotations

from broker.decide.admission.admit import Standing, admit
from broker.decide.admission.running import Running
from broker.decide.admission.wishes import Wish
from broker.decide.admission.yielding import yielding
from broker.model.admission import AdmissionRules
from tests.unit.decide.admission.scenes import pool, running, scene, wish


def given_back(wishes: list[Wish], held: list[Running]) -> frozenset[str]:
    seen = scene(wishes, [pool(free=0)], running=held)
    found = admit(seen, Standing(), AdmissionRules())
    return yielding(seen, found, {i: each.job.count for i, each in enumerate(wishes)})


def slices(tenant: str, *sizes: int) -> list[Running]:
    return [running(f"{tenant}-{n}", tenant, size, is_slice=True) for n, size in enumerate(sizes)]


def test_as_many_slices_as_are_wanted() -> None:
    assert given_back([wish("b", 3)], slices("a", 8, 4, 4)) == {"a-1"}
    assert given_back([wish("b", 9)], slices("a", 8, 4, 4)) == {"a-0", "a-1", "a-2"}


def test_one_with_less_gives_nothing_back() -> None:
    held = [*slices("a", 4), running("b-9", "b", 12)]
    assert given_back([wish("b", 8)], held) == frozenset()


def test_jobs_that_are_no_slices_are_left_alone() -> None:
    assert given_back([wish("b", 8)], [running("a-1", "a", 16)]) == frozenset()


def test_its_own_tenant_and_lower_priorities_are_owed_nothing() -> None:
    assert given_back([wish("a", 8)], slices("a", 16)) == frozenset()
    above = [running("a-1", "a", 16, is_slice=True, priority=5)]
    assert given_back([wish("b", 8)], above) == frozenset()


def test_who_could_never_start_is_owed_nothing() -> None:
    assert given_back([wish("b", 1, 8, replicas=9)], slices("a", 16)) == frozenset()
