"""What an attempt asks of the site, and the places it gets."""

from __future__ import annotations

from dataclasses import dataclass, replace

Counts = tuple[tuple[str, int], ...]
"""How many of each thing, by name."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one process sits: cards (or slots) by index, on a node by its index in `pool`."""

    pool: str
    node: int
    accelerators: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """`replicas` of a gang go to one pool, and there to one rack where `rack` names it."""

    pool: str
    rack: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Request:
    """What an attempt asks for: amounts per replica, `width` copies of `replicas` at once;
    `one_node`: those of a copy lie on one node. `extras` are taken of the pool, `features` are what
    every node of it must have. `parts`: where the replicas go, by rank; none: all to `pool`.
    `own_nodes`: no two replicas lie on one node."""

    pool: str
    replicas: int = 1
    accelerators: int = 0
    cpus_milli: int = 0
    memory_bytes: int = 0
    width: int = 1
    one_node: bool = False
    extras: Counts = ()
    features: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    own_nodes: bool = False

    @property
    def in_parts(self) -> tuple[Part, ...]:
        """Where the replicas of all its copies go."""
        return self.parts or (Part(self.pool, "", self.replicas * self.width),)

    @property
    def in_wholes(self) -> Request:
        """The same as pieces of which each lies on one node."""
        if not self.one_node:
            return self
        return replace(
            self,
            replicas=1,
            accelerators=self.accelerators * self.replicas,
            cpus_milli=self.cpus_milli * self.replicas,
            memory_bytes=self.memory_bytes * self.replicas,
            one_node=False,
        )
