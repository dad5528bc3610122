"""Node packing: levels are exact, patterns cover odd sizes, rows of whole numbers say the same."""

from __future__ import annotations

import random

import pytest

from broker.decide.greedy import LevelNodes, PackedNodes
from broker.decide.packing import from_counts, least_whole_nodes, pack, seat
from broker.decide.shapes import Amount, Counting, Shape, build_shape, enumerate_patterns, fits
from broker.decide.whole_numbers import money_unit, scale_row
from broker.model.problem import NodeGroup, Pool


def a_shape(sizes: list[int], size: int, *nodes: NodeGroup) -> Shape:
    amounts: list[Amount] = [(n, 0.0, 0.0) for n in sizes]
    return build_shape(Pool("p", "c", "H100", 1.0, size, nodes), amounts)


@pytest.mark.parametrize(
    ("sizes", "counting"),
    [
        ([1, 2, 4, 8], Counting.LEVELS),
        ([1, 3, 6], Counting.LEVELS),
        ([6, 8], Counting.LEVELS),
        ([2, 3], Counting.PATTERNS),
        ([1, 2, 3, 4, 6, 8], Counting.PATTERNS),
    ],
)
def test_sizes_that_divide_each_other_are_counted_by_levels(
    sizes: list[int], counting: Counting
) -> None:
    assert a_shape(sizes, 8, NodeGroup(3, 8)).counting is counting


def test_cpus_that_cannot_run_out_first_are_ignored() -> None:
    pool = Pool("p", "c", "H100", 1.0, 8, (NodeGroup(2, 8, 64.0, 256.0), NodeGroup(1, 2, 16.0)))
    shape = build_shape(pool, [(1, 8.0, 4.0), (4, 32.0, 4.0)])
    assert shape.counting is Counting.LEVELS and shape.kinds == ((4, 0.0, 0.0), (1, 0.0, 0.0))
    assert build_shape(pool, [(1, 9.0, 4.0)]).counting is Counting.PATTERNS


def test_patterns_are_those_to_which_nothing_can_be_added() -> None:
    pool = Pool("p", "c", "H100", 1.0, 8, (NodeGroup(2, 8), NodeGroup(1, 5)))
    found = enumerate_patterns(pool, [(5, 0.0, 0.0), (3, 0.0, 0.0)], 100)
    assert found is not None
    assert {(p.group, p.replicas, p.costs_whole) for p in found} == {
        (0, (1, 1), True),
        (0, (0, 2), True),
        (1, (1, 0), False),
        (1, (0, 1), False),
    }
    assert enumerate_patterns(pool, [(5, 0.0, 0.0), (3, 0.0, 0.0)], 3) is None


@pytest.mark.parametrize("seed", range(200))
def test_levels_and_concrete_nodes_agree(seed: int) -> None:
    dice = random.Random(seed)
    size = dice.choice([6, 8, 8, 12, 16])
    sizes = [n for n in dice.choice([[1, 2, 4, 8], [1, 3, 6], [2, 4], [1, 2, 6]]) if n <= size]
    groups = [NodeGroup(dice.randint(1, 3), free) for free in dice.sample(range(size + 1), 3)]
    shape = a_shape(sizes, size, *groups)
    levels = LevelNodes(shape)
    demand = [0] * len(shape.kinds)
    for _ in range(8):
        kind, replicas = dice.randrange(len(demand)), dice.randint(1, 5)
        fit = replicas <= levels.capacity(kind)
        assert levels.add(kind, replicas) is fit
        more = [n + replicas * (k == kind) for k, n in enumerate(demand)]
        assert (pack(shape, more) is not None) is fit
        demand = more if fit else demand
    packing = pack(shape, demand)
    assert packing is not None and packing.least
    assert packing.whole_nodes == levels.whole_nodes() == least_whole_nodes(shape, demand)
    held = [0] * len(demand)
    for run in packing.runs:
        held = [h + run.nodes * n for h, n in zip(held, run.replicas, strict=True)]
    assert held == demand


def test_packed_nodes_take_back_and_pack_anew() -> None:
    nodes = PackedNodes(a_shape([2, 3], 8, NodeGroup(2, 8)))
    assert nodes.add(1, 3) and nodes.add(0, 2)  # three of 2, two of 3
    before = nodes.packing()
    assert nodes.add(0, 1)
    nodes.remove(0, 1)
    assert nodes.packing() == before
    assert not nodes.add(0, 9)
    assert nodes.packing() == before


def test_places_offered_are_cut_to_the_demand() -> None:
    shape = a_shape([5, 3], 8, NodeGroup(2, 8), NodeGroup(1, 5))
    packing = from_counts(shape, [(0, (1, 1), 2), (1, (0, 1), 1)], (1, 2))
    assert packing.whole_nodes == 1
    assert [run.replicas for run in packing.runs] == [(1, 1), (0, 0), (0, 1)]
    assert all(fits(kind, run.room) >= 0 for run in packing.runs for kind in shape.kinds)
    with pytest.raises(ValueError, match="more nodes"):
        from_counts(shape, [(0, (1, 1), 3)], (1, 2))
    with pytest.raises(ValueError, match="not enough places"):
        from_counts(shape, [(0, (1, 1), 1)], (1, 2))


def test_seats_go_to_jobs_in_runs() -> None:
    shape = a_shape([1, 4], 8, NodeGroup(1000, 8))
    packing = pack(shape, [1000, 300])
    assert packing is not None
    fills = seat("p", packing, [[("a", 700), ("b", 300)], [("c", 300)]])
    assert sum(fill.nodes for fill in fills) == 538 and len(fills) < 10
    seated: dict[str, int] = {}
    for fill in fills:
        for job, count in fill.contents:
            seated[job] = seated.get(job, 0) + count * fill.nodes
    assert seated == {"a": 700, "b": 300, "c": 300}


@pytest.mark.parametrize(
    ("needs", "limit", "row"),
    [
        ([2.0, 4.0], 10.0, ([1, 2], 5)),
        ([0.1, 0.3], 1.0, ([1, 3], 10)),
        ([3.7, 9.0], 20.0, ([37, 90], 200)),
        ([1 / 1024, 0.5], 2.0, ([1, 512], 2048)),
        ([0.0, 0.0], 5.0, ([0, 0], 5)),
    ],
)
def test_short_figures_become_exact_rows(
    needs: list[float], limit: float, row: tuple[list[int], int]
) -> None:
    assert scale_row(needs, limit, [10, 10]) == row


def test_long_figures_are_rounded_to_the_safe_side_within_the_slack() -> None:
    dice = random.Random(7)
    for _ in range(200):
        needs = [dice.uniform(0.001, 9) for _ in range(3)]
        counts = [dice.randint(0, 40) for _ in range(3)]
        used = sum(a * n for a, n in zip(needs, counts, strict=True))
        scaled, high = scale_row(needs, used, [40, 40, 40])
        assert sum(a * n for a, n in zip(scaled, counts, strict=True)) <= high
        over = used * (1 - 1e-8)
        scaled, high = scale_row(needs, over, [40, 40, 40])
        assert used == 0 or sum(a * n for a, n in zip(scaled, counts, strict=True)) > high


def test_money_is_counted_in_micro_usd_until_sums_get_too_large() -> None:
    assert money_unit(1e9) == 1e-6
    assert 1e18 / money_unit(1e18) <= 2**60
