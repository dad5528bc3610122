"""What a hard constraint consists of. Each is a module here; `broker.decide.constraints` lists
them. The mask is for all pairs at once, the check is scalar and shares nothing with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from broker.decide.pairs import Booleans, Floats, PairFigures
from broker.decide.tallies import Tally
from broker.decide.terms import Geography
from broker.decide.verify_nodes import NodeCheck
from broker.decide.violations import ViolationKind
from broker.model.plan import Assignment, NodeFill, Part
from broker.model.problem import CPU, Job, Pool, Problem, Tenant
from broker.model.topology import Topology
from federation.refusals import Refusal, RefusalCode
from federation.units import format_duration


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to change: `what` names it in the words of the problem format, `before` and `after`
    are its values as text. `size` compares changes of the same kind: smaller is less."""

    code: RefusalCode
    what: str
    before: str
    after: str
    size: float

    @property
    def text(self) -> str:
        """One line for people."""
        return f"{self.what} {self.before} -> {self.after}" if self.before else self.what


Undo = Callable[[Problem, Refusal], tuple[Problem, Change] | None]
"""The problem of one job and one pool with the smallest change that undoes a refusal; None where
no change known would."""


class Grain(Enum):
    """For which pools a mask is the same: those alike in model, region and price kind; or not, and
    it is cheap for all of them; or not, and it is looked at only where all others allow it."""

    SORT = auto()
    POOL = auto()
    PAIR = auto()


@dataclass(frozen=True, slots=True)
class PairConstraint:
    """Whether a job may go to a pool, whatever else goes where. `mask` says so for pairs at once,
    `check` for one; `refusal` puts into words why not, after a check that failed; `undo` lifts it.
    `codes` are those of its refusals, empty where a caller gives the reason."""

    name: str
    codes: frozenset[RefusalCode]
    grain: Grain
    mask: Callable[[PairFigures], Booleans]
    check: Callable[[Geography, Job, Pool], bool]
    refusal: Callable[[Geography, Job, Pool], Refusal]
    undo: Undo


@dataclass(frozen=True, slots=True)
class Share:
    """Copies of a job in a pool, in its queue (`Pool.as_queue`), or there later
    (`Pool.as_later`). `parts` are those of each copy where the plan names them, `level` what it
    says that the replicas share."""

    job: Job
    pool: Pool
    copies: int
    parts: tuple[Part, ...] = ()
    level: Topology | None = None

    @property
    def replicas(self) -> Mapping[str, int]:
        """Replicas of each copy by the pool they lie in."""
        found: dict[str, int] = {}
        for part in self.parts or (Part(self.pool.name, "", self.job.replicas),):
            found[part.pool] = found.get(part.pool, 0) + part.replicas
        return found

    @property
    def accelerators(self) -> int:
        """Accelerators of all of them."""
        return self.copies * self.job.replicas * self.job.accelerators_per_replica

    def accelerators_in(self, pool: str) -> int:
        """Accelerators of all of them that are in one of its pools, or for the start of one."""
        if not self.parts:
            return self.accelerators
        return self.copies * self.replicas.get(pool, 0) * self.job.accelerators_per_replica

    @property
    def text(self) -> str:
        """What goes where."""
        name, queued, starts_h = self.pool.place
        where = Assignment(self.job.id, name, self.copies, queued, starts_h).where
        return f"{self.job.id} in {where}"


@dataclass(frozen=True, slots=True)
class Placed:
    """A plan as the verifier looks at it: its shares, what is on nodes, what was found there."""

    problem: Problem
    shares: Sequence[Share]
    fills: Sequence[NodeFill]
    nodes: NodeCheck


@dataclass(frozen=True, slots=True)
class Beside:
    """One more copy of `job` in `pool`, beside what a plan holds: `places` for its replicas on
    nodes, and `elsewhere` in the pools alike of its cluster, what is left of the pool's cpus and
    memory (infinite without a limit), what its tenant has `used` in a cluster or (None) in all, why
    it is `too_large` for the pool even empty, and what is `left` by the name of a tally (nothing
    known where the pair is no option)."""

    job: Job
    pool: Pool
    tenant: Tenant | None
    places: int
    cpus: float
    memory_gib: float
    used: Callable[[str | None], int]
    too_large: tuple[Refusal, ...]
    left: Mapping[str, int] = field(default_factory=dict)
    elsewhere: int = 0


@dataclass(frozen=True, slots=True)
class SharedConstraint:
    """What copies share. `most` says for pairs at once how many copies fit were there nothing else;
    `check` finds what is wrong with a plan, as violations of `kind`; `refusals` puts into words
    what one more copy lacks; `undo` lifts one of them. `tallies` are its counts beside nodes,
    totals and quotas, which have their own. `most` is the same for all jobs of one
    `same_for`; None where all of a job may decide."""

    name: str
    codes: frozenset[RefusalCode]
    kind: ViolationKind
    most: Callable[[PairFigures], Floats]
    check: Callable[[Placed], Iterator[str]]
    refusals: Callable[[Beside], Iterator[Refusal]]
    undo: Undo
    tallies: Callable[[PairFigures], Iterator[Tally]] | None = None
    same_for: Callable[[Job], Hashable] | None = None


def needs(job: Job) -> Hashable:
    """What a copy takes of nodes, cpus and memory."""
    replica = (job.accelerators_per_replica, job.replica_cpus, job.replica_memory_gib)
    return (job.replicas, job.one_per_node, *replica)


def takes_of_quota(job: Job) -> Hashable:
    """Whose quota a copy counts against, and how much of it."""
    return job.tenant, job.gang_accelerators


def raised(refusal: Refusal, what: str, before: float, after: float) -> Change:
    """The change of a limit to a higher figure."""
    size = math.inf if before <= 0 else after / before - 1
    return Change(refusal.code, what, f"{before:g}", f"{after:.10g}", size)


def slots(number: int, job: Job) -> str:
    """A number of what a job takes of a pool."""
    return counted(number, "CPU slot" if set(job.accelerators) == {CPU} else "accelerator")


def span(hours: float) -> str:
    """Hours as people say them, to the second: `1h30m`."""
    return format_duration(round(hours * 3600)) if math.isfinite(hours) else f"{hours} h"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it has to be."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
