"""A plan: the answer to one planning problem, as one frozen value, down to concrete nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from broker.model.prices import Prices
from broker.model.topology import Topology
from federation.refusals import Refusal


class PlanStatus(StrEnum):
    """How good a plan is known to be. Every plan is verified, whatever its status."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    FLOOR = "floor"


@dataclass(frozen=True, slots=True)
class Part:
    """`replicas` of a copy lie in one pool, and there in one rack where `rack` names it."""

    pool: str
    rack: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """`count` copies of a job go to one pool, or wait in its queue (`queued`), or for a start there
    in `start_h` hours; at most one of each per job and pool. Where replicas are bound to racks, or
    lie in several pools, `parts` says where those of each of these copies are (`pool` is the first
    of them); `level` is what they share, where the job pays for it. There may then be one for each
    way."""

    job: str
    pool: str
    count: int
    queued: bool = False
    start_h: float = 0.0
    parts: tuple[Part, ...] = ()
    level: Topology | None = None

    @property
    def place(self) -> tuple[str, bool, float]:
        """Where and when, as in `Pool.place`."""
        return (self.pool, self.queued, self.start_h)

    @property
    def waits(self) -> bool:
        """Whether it takes nothing that is free now."""
        return self.queued or self.start_h > 0

    @property
    def where(self) -> str:
        """The same for people."""
        if self.start_h:
            return f"{self.pool} in {self.start_h:.4g} h"
        return f"the queue of {self.pool}" if self.queued else self.pool


@dataclass(frozen=True, slots=True)
class Unplaced:
    """`count` copies of a job are left, and one reason for it."""

    job: str
    count: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class NodeFill:
    """Each of the nodes `first_node .. first_node + nodes - 1` of a pool takes the same
    replicas: `contents` is (job id, replicas) with at least one replica each."""

    pool: str
    first_node: int
    nodes: int
    contents: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes where, what it costs, and what is known about the best possible.

    `objective_usd` is value minus cost in scalar mode, minus the cost in place_first.
    `bound_usd` is an upper bound on it (in place_first given the placed weight of each
    priority), None where no valid one is known. `placed` maps a priority to its placed
    accelerators, `whole_nodes` a pool to the whole nodes given to smaller replicas. `fills` are
    disjoint, by pool then node. `charged_as_packed` are pools that pay for the whole nodes of their
    fills, not known to be the least possible. `notes` are remarks for operators, such as a solver
    that died. `prices` are advice for the next decision, where some were found.
    """

    status: PlanStatus
    objective_usd: float
    bound_usd: float | None
    cost_usd: float
    placed: Mapping[int, int] = field(default_factory=dict)
    assignments: tuple[Assignment, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    fills: tuple[NodeFill, ...] = ()
    whole_nodes: Mapping[str, int] = field(default_factory=dict)
    charged_as_packed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    prices: Prices | None = None

    @property
    def gap(self) -> float | None:
        """(bound - objective) / max(|bound|, 1e-9) as a fraction, at least 0; None without
        bound."""
        if self.bound_usd is None:
            return None
        missing = max(0.0, self.bound_usd - self.objective_usd)
        return missing / max(abs(self.bound_usd), 1e-9)
