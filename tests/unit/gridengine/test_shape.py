"""How many slots of which parallel environment a job asks for."""

from __future__ import annotations

import pytest

from regional_agent.gridengine.configuration import Environment
from regional_agent.gridengine.shape import Shape, Wanted, shape_of

SMP = Environment("smp", "$pe_slots", 999, spreads=False)
MPI = Environment("mpi", "$fill_up", 999, spreads=True)
FOUR = Environment("four", "4", 999, spreads=True)
LOOSE = Environment("loose", "$round_robin", 999, spreads=False)


def shape(*there: Environment, **wanted: object) -> Shape | str:
    usual: dict[str, object] = {"replicas": 1, "cpus": 1, "cards": 0, "one_host": False,
                                "slots_max": 16, "hosts_max": 9, "per_job": False}  # fmt: skip
    return shape_of(Wanted(**usual | wanted), there)  # type: ignore[arg-type]


def test_one_slot_needs_no_environment() -> None:
    assert shape() == Shape(1, "", 0)
    assert shape(cards=8) == Shape(1, "", 8)


def test_several_slots_of_one_job_stay_on_one_host() -> None:
    assert shape(MPI, SMP, cpus=6) == Shape(6, "smp", 0)
    assert "one host (6 in all); the queue has mpi ($fill_up)" in str(shape(MPI, cpus=6))
    assert "17 slots" in str(shape(SMP, cpus=17))  # no host has so many


def test_what_counts_per_slot_is_divided_among_the_slots() -> None:
    assert shape(SMP, cpus=3, cards=8) == Shape(4, "smp", 2)
    assert "as many cpus as cards" in str(shape(SMP, cpus=9, cards=8))
    assert shape(SMP, cpus=9, cards=8, per_job=True) == Shape(9, "smp", 8)


@pytest.mark.parametrize("there", [(SMP, MPI), (MPI, SMP)])
def test_a_gang_spreads_where_it_may(there: tuple[Environment, ...]) -> None:
    assert shape(*there, replicas=4) == Shape(4, "mpi", 0)
    assert shape(*there, replicas=4, one_host=True) == Shape(4, "smp", 0)


def test_a_replica_is_never_cut_in_two() -> None:
    assert shape(FOUR, MPI, SMP, replicas=6, cpus=2) == Shape(12, "four", 0)
    assert shape(FOUR, MPI, SMP, replicas=5, cpus=2) == Shape(10, "smp", 0)
    assert "6 replicas of 3 slots whole on their hosts" in str(shape(FOUR, MPI, replicas=6, cpus=3))


def test_a_fixed_number_of_slots_a_host_needs_so_many_hosts() -> None:
    assert shape(FOUR, replicas=4, cpus=2, hosts_max=2) == Shape(8, "four", 0)
    assert isinstance(shape(FOUR, replicas=6, cpus=2, hosts_max=2), str)


def test_members_on_other_hosts_need_an_environment_that_may_start_them() -> None:
    assert "loose ($round_robin, no slaves)" in str(shape(LOOSE, replicas=2))


def test_cards_that_count_per_job_are_not_known_on_other_hosts() -> None:
    assert shape(MPI, SMP, replicas=2, cards=2, per_job=True) == Shape(2, "smp", 4)
    assert isinstance(shape(MPI, replicas=2, cards=2, per_job=True), str)


def test_an_environment_has_so_many_slots() -> None:
    few = Environment("few", "$fill_up", 3, spreads=True)
    assert isinstance(shape(few, replicas=4), str)
