"""The nodes of one pool while a plan grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from broker.decide.packing import Packer, Packing, Run, pack
from broker.decide.shapes import Shape

PLENTY = 2**62
"""More than is ever asked for."""


class Nodes(Protocol):
    """The nodes of one pool while a plan grows."""

    def capacity(self, kind: int) -> int:
        """Replicas of a kind that can be added."""

    def add(self, kind: int, replicas: int) -> bool:
        """Add replicas of a kind; False, with nothing changed, when they do not fit."""

    def add_all(self, demand: Sequence[int]) -> bool:
        """Add replicas of every kind at once; False, and these nodes are of no use any more, when
        they are not made to fit."""

    def remove(self, kind: int, replicas: int) -> None:
        """Take back what the last `add` added."""

    def whole_nodes(self) -> int:
        """Whole nodes given to smaller replicas so far."""

    def mark(self) -> object:
        """How they stand, for `back_to`."""

    def back_to(self, mark: Any) -> None:
        """As they stood when marked."""


class LevelNodes:
    """Nodes counted by levels: exact, without saying which node."""

    __slots__ = ("_capacity", "_full", "_levels", "_opened", "_sizes", "_used", "_whole_left")

    def __init__(self, shape: Shape) -> None:
        full = shape.node_size
        self._full = full
        self._sizes = [kind[0] for kind in shape.kinds]
        self._levels = [(size, full // size, shape.part_blocks(size)) for size in shape.levels]
        self._used = [0] * len(shape.levels)
        self._whole_left = shape.whole
        self._opened = 0
        self._capacity: dict[int, int] = {}
        self._recount()

    def fresh(self) -> LevelNodes:
        """A copy to work on."""
        copy = object.__new__(LevelNodes)
        copy._full, copy._sizes, copy._levels = self._full, self._sizes, self._levels
        copy._used = self._used.copy()
        copy._whole_left, copy._opened = self._whole_left, self._opened
        copy._capacity = self._capacity.copy()
        return copy

    def capacity(self, kind: int) -> int:
        """Replicas of a kind that can be added."""
        return self._capacity[self._sizes[kind]]

    def room(self, sizes: Sequence[int]) -> list[int]:
        """Replicas of some sizes that can be added, bounded."""
        capacity = self._capacity
        return [min(capacity.get(size, 0), PLENTY) for size in sizes]

    def add(self, kind: int, replicas: int) -> bool:
        """Add replicas of a kind; False, with nothing changed, when they do not fit."""
        if replicas > self._capacity[self._sizes[kind]]:
            return False
        self._count(kind, replicas)
        return True

    def add_all(self, demand: Sequence[int]) -> bool:
        """Add replicas of every kind at once; False, and these nodes are of no use any more, when
        they do not fit."""
        used = self._used
        for size, replicas in zip(self._sizes, demand, strict=True):
            if not replicas:
                continue
            if size == self._full:
                self._whole_left -= replicas
                continue
            for index, (level, _, _) in enumerate(self._levels):
                if level > size:
                    break
                used[index] += replicas * (size // level)
        self._recount()
        return self._whole_left >= self._opened

    def remove(self, kind: int, replicas: int) -> None:
        """Take back what the last `add` added."""
        self._count(kind, -replicas)

    def whole_nodes(self) -> int:
        """Whole nodes given to smaller replicas so far: the least that would do."""
        return self._opened

    def mark(self) -> tuple[list[int], int]:
        """How they stand, for `back_to`."""
        return self._used.copy(), self._whole_left

    def back_to(self, mark: tuple[list[int], int]) -> None:
        """As they stood when marked."""
        self._used, self._whole_left = mark[0].copy(), mark[1]
        self._recount()

    def _count(self, kind: int, replicas: int) -> None:
        size = self._sizes[kind]
        if size == self._full:
            self._whole_left -= replicas
        else:
            for index, (level, _, _) in enumerate(self._levels):
                if level > size:
                    break
                self._used[index] += replicas * (size // level)
        self._recount()

    def _recount(self) -> None:
        opened, least = 0, 0
        capacity, whole, used = self._capacity, self._whole_left, self._used
        for index, (level, per_node, parts) in enumerate(self._levels):
            missing = used[index] - parts
            opening = -(-missing // per_node)
            if opening > opened:
                opened = opening
            free = (whole * per_node - missing) * level
            if not index or free < least:
                least = free
            capacity[level] = least // level if least > 0 else 0
        self._opened = opened
        capacity[self._full] = whole - opened


class PackedNodes:
    """Nodes filled one by one; packs anew when a replica does not fit beside what lies there."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._packer = Packer(shape)
        self._before = self._packer.runs
        self._demand = [0] * len(shape.kinds)

    def capacity(self, kind: int) -> int:
        """Replicas of a kind that can be added without moving others."""
        return self._packer.capacity(kind)

    def add(self, kind: int, replicas: int) -> bool:
        """Add replicas of a kind; False, with nothing changed, when they are not made to fit."""
        before = list(self._packer.runs)
        self._demand[kind] += replicas
        if not self._packer.add(kind, replicas):
            anew = pack(self._shape, self._demand)
            if anew is None:
                self._demand[kind] -= replicas
                return False
            self._packer.runs = list(anew.runs)
        self._before = before
        return True

    def add_all(self, demand: Sequence[int]) -> bool:
        """Add replicas of every kind at once; False, and these nodes are of no use any more, when
        they are not made to fit."""
        return all(self.add(kind, replicas) for kind, replicas in enumerate(demand) if replicas)

    def remove(self, kind: int, replicas: int) -> None:
        """Take back what the last `add` added."""
        self._demand[kind] -= replicas
        self._packer.runs = self._before

    def whole_nodes(self) -> int:
        """Whole nodes given to smaller replicas so far."""
        return self._packer.whole_nodes()

    def mark(self) -> tuple[list[Run], list[int]]:
        """How they stand, for `back_to`."""
        return list(self._packer.runs), self._demand.copy()

    def back_to(self, mark: tuple[list[Run], list[int]]) -> None:
        """As they stood when marked."""
        self._packer.runs, self._demand = list(mark[0]), mark[1].copy()

    def start(self, packing: Packing, demand: Sequence[int]) -> None:
        """Start from a packing of a demand."""
        self._packer.runs = list(packing.runs)
        self._demand = list(demand)

    def packing(self) -> Packing:
        """What lies where."""
        return self._packer.packing(least=False)
