"""The hard constraints, one module each, and the one list of them."""

from __future__ import annotations

from collections.abc import Iterator

from broker.decide.constraints.accelerator_memory import ACCELERATOR_MEMORY
from broker.decide.constraints.apart import APART
from broker.decide.constraints.apart_region import APART_REGION
from broker.decide.constraints.budget import BUDGET
from broker.decide.constraints.capacity import CAPACITY
from broker.decide.constraints.cluster_quota import CLUSTER_QUOTA
from broker.decide.constraints.constraint import PairConstraint, SharedConstraint
from broker.decide.constraints.cpus import CPUS
from broker.decide.constraints.deadline import DEADLINE
from broker.decide.constraints.exclusion import EXCLUSION
from broker.decide.constraints.extras import EXTRAS
from broker.decide.constraints.later import LATER
from broker.decide.constraints.maintenance import MAINTENANCE
from broker.decide.constraints.memory import MEMORY
from broker.decide.constraints.model import MODEL
from broker.decide.constraints.node_shape import NODE_SHAPE
from broker.decide.constraints.one_per_node import ONE_PER_NODE
from broker.decide.constraints.one_rack import ONE_RACK
from broker.decide.constraints.price_cap import PRICE_CAP
from broker.decide.constraints.queue import QUEUE
from broker.decide.constraints.rack import RACK
from broker.decide.constraints.region import REGION
from broker.decide.constraints.round_trip import ROUND_TRIP
from broker.decide.constraints.several_pools import SEVERAL_POOLS
from broker.decide.constraints.spot import SPOT
from broker.decide.constraints.spread import SPREAD
from broker.decide.constraints.tenant_quota import TENANT_QUOTA
from broker.decide.constraints.topology import TOPOLOGY
from broker.decide.constraints.usable import USABLE
from broker.decide.terms import Geography
from broker.model.problem import Job, Pool
from federation.refusals import Refusal

PAIR_CONSTRAINTS: tuple[PairConstraint, ...] = (
    USABLE,
    EXCLUSION,
    MODEL,
    SPOT,
    REGION,
    ROUND_TRIP,
    ACCELERATOR_MEMORY,
    RACK,
    DEADLINE,
    MAINTENANCE,
    BUDGET,
    PRICE_CAP,
)
"""Whether a job may go to a pool, in the order in which reasons are told."""

SHARED_CONSTRAINTS: tuple[SharedConstraint, ...] = (
    TENANT_QUOTA,
    CLUSTER_QUOTA,
    TOPOLOGY,
    ONE_RACK,
    ONE_PER_NODE,
    SEVERAL_POOLS,
    NODE_SHAPE,
    CAPACITY,
    CPUS,
    MEMORY,
    QUEUE,
    LATER,
    EXTRAS,
    SPREAD,
    APART,
    APART_REGION,
)
"""What copies share, in the order in which reasons are told."""


CONSTRAINTS: tuple[PairConstraint | SharedConstraint, ...] = (
    *PAIR_CONSTRAINTS,
    *SHARED_CONSTRAINTS,
)


def refusals(where: Geography, job: Job, pool: Pool) -> Iterator[Refusal]:
    """Every reason why the job may not go to the pool, how much is free there apart."""
    # What takes how long is not known where the job does not run at all.
    unknown = () if MODEL.check(where, job, pool) else (DEADLINE, MAINTENANCE, BUDGET, PRICE_CAP)
    for constraint in PAIR_CONSTRAINTS:
        if constraint not in unknown and not constraint.check(where, job, pool):
            yield constraint.refusal(where, job, pool)


def responsible(refusal: Refusal, job: Job, pool: Pool) -> PairConstraint | SharedConstraint | None:
    """The constraint that a refusal of a job by a pool comes from; None when it is not one."""
    if refusal == pool.unusable:
        return USABLE
    if refusal == job.excluded.get(pool.cluster):
        return EXCLUSION
    return next((c for c in CONSTRAINTS if refusal.code in c.codes), None)
