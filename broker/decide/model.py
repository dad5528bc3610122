"""The class-aggregated integer model as plain rows, without any solver.

Columns: one per option (copies placed), then per pool what its counting of nodes needs. All lower
bounds are 0. The rows are class counts, nodes, pool cpus and memory, quotas and tallies; and, where
gangs are decided by their members, that these make whole copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.decide.bundles import Bundle
from broker.decide.case import Case
from broker.decide.shapes import Counting, Shape, fits, room_of
from broker.decide.whole_numbers import scale_row

Asked = list[list[tuple[int, int]]]
"""Per kind of replica (column, replicas of one)."""


@dataclass(frozen=True, slots=True)
class Row:
    """`sum(coefficients * columns) <= high`."""

    columns: Sequence[int]
    coefficients: Sequence[int]
    high: int


@dataclass(slots=True)
class Model:
    """`upper` per column. The sum of the columns `whole` is the whole nodes given to smaller
    replicas. For pools not counted by levels, by pool index: `patterns` has (column counting nodes,
    group, replicas per kind on each), `nodes` has (group, columns counting replicas per kind). For
    those counted by levels `opened` is the column of whole nodes given to smaller replicas.
    `exact` when the rows are those of the problem itself, neither stricter nor looser."""

    upper: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    patterns: dict[int, list[tuple[int, int, tuple[int, ...]]]] = field(default_factory=dict)
    nodes: dict[int, list[tuple[int, tuple[int, ...]]]] = field(default_factory=dict)
    opened: dict[int, int] = field(default_factory=dict)
    exact: bool = True

    def column(self, upper: int) -> int:
        """A new column; returns its index."""
        self.upper.append(upper)
        return len(self.upper) - 1

    def at_most(self, terms: Sequence[tuple[int, int]], high: int) -> None:
        """A new row over (column, coefficient); one that can never bind is left out."""
        terms = [(c, a) for c, a in terms if a]
        if sum(a * self.upper[c] for c, a in terms if a > 0) > high:
            self.rows.append(Row([c for c, _ in terms], [a for _, a in terms], high))


def build_model(case: Case, *, relaxed: bool = False) -> Model:
    """The model of a case. `relaxed` replaces rows that are stricter than the problem (of pools
    whose replicas are rounded up) by looser ones, so that its best objective is a valid bound."""
    model = Model()
    model.upper = case.options.most.tolist()
    by_pool: list[list[int]] = [[] for _ in case.problem.pools]
    for option, pool in enumerate(case.options.pool_index.tolist()):
        by_pool[pool].append(option)
    first = case.options.first.tolist()
    for k, job_class in enumerate(case.classes):
        members = range(first[k], first[k + 1])
        model.at_most([(option, 1) for option in members], job_class.count)
    for bundle in case.bundles.all:
        _bundle_rows(model, bundle)
    for pool, options in enumerate(by_pool):
        shape = case.shapes[pool]
        if shape is not None:
            _node_rows(model, case, shape, pool, options, relaxed=relaxed)
            _total_rows(model, case, pool, options)
    gang, class_of = case.gang, case.options.class_index
    for limit, of_quota in zip(case.quotas.limit, case.quota_options(), strict=True):
        model.at_most([(option, gang[class_of[option]]) for option in of_quota], limit)
    for tally in case.tallies:
        for terms, most in tally.terms():
            model.at_most(terms, most)
    return model


def _bundle_rows(model: Model, bundle: Bundle) -> None:
    """The members are a multiple of those of a copy: a column counts the copies."""
    members = [(option, 1) for option in bundle.options]
    copies = model.column(sum(model.upper[option] for option in bundle.options) // bundle.size)
    model.at_most([*members, (copies, -bundle.size)], 0)
    model.at_most([(copies, bundle.size), *((option, -1) for option, _ in members)], 0)


def _node_rows(
    model: Model, case: Case, shape: Shape, pool: int, options: list[int], *, relaxed: bool
) -> None:
    if shape.counting is Counting.PATTERNS:
        _pattern_rows(model, shape, pool, _asked(case, shape, options), [0] * len(shape.kinds))
    elif shape.counting is Counting.NODES:
        due = [0] * len(shape.kinds)
        _single_node_rows(model, shape, pool, _asked(case, shape, options), due)
    elif shape.counting is Counting.LEVELS:
        _level_rows(model, case, shape, pool, options)
    elif relaxed or shape.rounded is None:
        _level_rows(model, case, shape, pool, options)
        _node_total_rows(model, case, pool, options)
    else:
        model.exact = False
        for option in options:
            if shape.rounded.kinds[case.kind[option]][0] > shape.node_size:
                model.upper[option] = 0
        _level_rows(model, case, shape.rounded, pool, options)


def build_pack_model(shape: Shape, demand: Sequence[int]) -> Model | None:
    """The model of one pool (index 0) whose replicas are given; None where no exact one is made."""
    model = Model()
    asked: Asked = [[] for _ in shape.kinds]
    if shape.counting is Counting.PATTERNS:
        _pattern_rows(model, shape, 0, asked, demand)
    elif shape.counting is Counting.NODES:
        _single_node_rows(model, shape, 0, asked, demand)
    else:
        return None
    return model


def _asked(case: Case, shape: Shape, options: list[int]) -> Asked:
    """Per kind the (column, replicas) that ask for places."""
    asked: Asked = [[] for _ in shape.kinds]
    for option in options:
        job = case.classes[case.options.class_index[option]].job
        asked[case.kind[option]].append((option, job.replicas))
    return asked


def _level_rows(model: Model, case: Case, shape: Shape, pool: int, options: list[int]) -> None:
    """Blocks of each size: exact where the sizes divide each other, otherwise looser than the
    problem, as each replica counts for the whole blocks in it."""
    full, whole = shape.node_size, shape.whole
    large: list[tuple[int, int]] = []
    small: list[tuple[int, int, int]] = []
    for option in options:
        replicas = case.classes[case.options.class_index[option]].job.replicas
        size = shape.kinds[case.kind[option]][0]
        if size >= full:
            large.append((option, replicas))
        else:
            small.append((option, replicas, size))
    charged = case.problem.objective.fragmentation_usd_per_node > 0
    opened = model.column(whole) if small and whole and (large or charged) else None
    if opened is not None:
        model.whole.append(opened)
        model.opened[pool] = opened
    model.at_most(large + ([] if opened is None else [(opened, 1)]), whole)
    for level in sorted({size for _, _, size in small}):
        terms = [(option, n * (size // level)) for option, n, size in small]
        blocks = shape.part_blocks(level)
        if opened is None:
            blocks += whole * (full // level)
        else:
            terms.append((opened, -(full // level)))
        model.at_most(terms, blocks)


def _pattern_rows(model: Model, shape: Shape, pool: int, asked: Asked, due: Sequence[int]) -> None:
    groups: dict[int, list[tuple[int, int]]] = {}
    places: list[list[tuple[int, int]]] = [[] for _ in shape.kinds]
    model.patterns[pool] = []
    for pattern in shape.patterns:
        column = model.column(shape.pool.nodes[pattern.group].count)
        model.patterns[pool].append((column, pattern.group, pattern.replicas))
        groups.setdefault(pattern.group, []).append((column, 1))
        if pattern.costs_whole:
            model.whole.append(column)
        for kind, replicas in enumerate(pattern.replicas):
            if replicas:
                places[kind].append((column, -replicas))
    for group, terms in groups.items():
        model.at_most(terms, shape.pool.nodes[group].count)
    for kind, given in enumerate(places):
        model.at_most(asked[kind] + given, -due[kind])


def _single_node_rows(
    model: Model, shape: Shape, pool: int, asked: Asked, due: Sequence[int]
) -> None:
    places: list[list[tuple[int, int]]] = [[] for _ in shape.kinds]
    model.nodes[pool] = []
    for index, group in enumerate(shape.pool.nodes):
        room = room_of(group)
        whole = group.free_accelerators == shape.node_size
        for _ in range(group.count):
            columns = tuple(model.column(fits(kind, room)) for kind in shape.kinds)
            model.nodes[pool].append((index, columns))
            for kind, column in enumerate(columns):
                places[kind].append((column, -1))
            sizes = [(c, kind[0]) for c, kind in zip(columns, shape.kinds, strict=True)]
            model.at_most(sizes, group.free_accelerators)
            for figure, limit in ((1, group.free_cpus), (2, group.free_memory_gib)):
                if limit is not None:
                    needs = [kind[figure] for kind in shape.kinds]
                    most = [model.upper[column] for column in columns]
                    scaled, high = scale_row(needs, limit, most)
                    model.at_most(list(zip(columns, scaled, strict=True)), high)
            if whole:
                opened = model.column(1)
                model.whole.append(opened)
                small = [(c, size) for c, size in sizes if size < shape.node_size]
                model.at_most([*small, (opened, -shape.node_size)], 0)
    for kind, given in enumerate(places):
        model.at_most(asked[kind] + given, -due[kind])


def _total_rows(model: Model, case: Case, pool: int, options: list[int]) -> None:
    limits = case.problem.pools[pool]
    _figure_rows(model, case, options, limits.free_cpus, limits.free_memory_gib)


def _node_total_rows(model: Model, case: Case, pool: int, options: list[int]) -> None:
    """cpus and memory summed over the nodes: looser than node by node."""
    groups = case.problem.pools[pool].nodes
    cpus = [None if g.free_cpus is None else g.count * g.free_cpus for g in groups]
    memory = [None if g.free_memory_gib is None else g.count * g.free_memory_gib for g in groups]
    _figure_rows(model, case, options, _sum(cpus), _sum(memory))


def _sum(limits: Sequence[float | None]) -> float | None:
    known = [limit for limit in limits if limit is not None]
    return sum(known) if len(known) == len(limits) else None


def _figure_rows(
    model: Model, case: Case, options: list[int], cpus: float | None, memory: float | None
) -> None:
    jobs = [case.classes[case.options.class_index[option]].job for option in options]
    most = [model.upper[option] for option in options]
    for needs, limit in (
        ([job.replicas * job.replica_cpus for job in jobs], cpus),
        ([job.replicas * job.replica_memory_gib for job in jobs], memory),
    ):
        if limit is not None:
            scaled, high = scale_row(needs, limit, most)
            model.at_most(list(zip(options, scaled, strict=True)), high)
