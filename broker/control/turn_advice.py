"""What would start a job that waits for its turn: a place alone may go to somebody else. Pure."""

from __future__ import annotations

from dataclasses import replace

from broker.control.admitting import Admitting
from broker.control.build_problem import ProblemBuilder, World
from broker.control.queue_place import Place
from broker.decide.admission.admit import Standing
from broker.decide.admission.turns import Turns
from broker.decide.constraints.constraint import Change
from broker.decide.explain import Explanation
from federation.refusals import RefusalCode


def waits_for_turn(place: Place) -> bool:
    """Whether the last cycle said that others go first by their shares."""
    return any(
        same_class(item.job, place.head) and item.refusal.code is RefusalCode.FAIR_SHARE
        for item in place.cycle.applier.plan.unplaced
    )


def same_class(name: str, other: str) -> bool:
    """Whether two names in a problem are parts of one class (`Waiting.key`)."""
    return name.partition("~")[0] == other.partition("~")[0]


def turns_in(admitting: Admitting, world: World, place: Place) -> Turns:
    """The queue that the last cycle left, as it would be admitted in the world as it is."""
    builder = ProblemBuilder(world, [])
    for _ in builder.pools():
        pass
    scene = admitting.scene(world, builder, admitting.waits)
    names = {pool.name for pool in scene.pools}
    holds = tuple(hold for hold in admitting.holds if hold.pool in names)
    standing = Standing(admitting.past, holds)
    return Turns(scene, standing, admitting.rules, place.cycle.problem)


def with_turn(waits: Explanation, turns: Turns, head: str) -> Explanation:
    """The smallest change together with the weight without which what it frees would be somebody
    else's, where there is such a weight. `head` stands for the class of the job."""
    advice = waits.advice
    wishes = [wish.job.id for wish in turns.scene.wishes]
    index = next((i for i, name in enumerate(wishes) if same_class(name, head)), None)
    pools = {pool.name: pool for pool in turns.scene.pools}
    if advice is None or index is None or advice.pool not in pools:
        return waits
    pool = pools[advice.pool]
    turns = turns.with_pool(replace(pool, nodes=(*pool.nodes, *advice.added)))
    before, after = turns.weight_of(index), turns.least_weight(index, pool.name)
    if after is None or after == before:
        return waits
    tenant = turns.scene.wishes[index].job.tenant
    change = Change(
        RefusalCode.FAIR_SHARE, f"weight of {tenant}", f"{before}", f"{after}", after / before - 1
    )
    return replace(waits, advice=replace(advice, changes=(*advice.changes, change)))
