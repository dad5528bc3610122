"""How near to each other the replicas of a gang lie."""

from __future__ import annotations

from enum import StrEnum


class Topology(StrEnum):
    """What the replicas of a copy share, the best first."""

    NODE = "node"
    RACK = "rack"
    CLUSTER = "cluster"

    @property
    def and_better(self) -> tuple[Topology, ...]:
        """This level and those that are better, the best first."""
        levels = tuple(Topology)
        return levels[: levels.index(self) + 1]
