"""Taking back what has not begun: whoever has the claim of a task first decides, a script or the
agent."""

from __future__ import annotations

import asyncio

from federation.runs import Runs
from regional_agent.act.schedulers.batch import shelf
from regional_agent.act.schedulers.batch.attempt import Attempt
from regional_agent.act.schedulers.batch.parts import plan
from regional_agent.act.schedulers.batch.system import BatchSystem, Traits


async def drop(attempt: Attempt, system: BatchSystem, wanted: Runs) -> None:
    """Take tasks out of an array, but for those that have begun."""
    for part in attempt.parts:
        candidates = part.tasks.intersection(wanted).difference(attempt.started)
        dropped = await asyncio.to_thread(shelf.take_claims, attempt, part, candidates)
        if dropped and part.local_id:
            await system.remove(part.local_id, part.indices_of(dropped))
        attempt.dropped = attempt.dropped.union(dropped)
        attempt.tasks = attempt.tasks.difference(dropped)
        part.tasks = part.tasks if part.table else part.tasks.difference(dropped)


async def all_of_it(attempt: Attempt, system: BatchSystem, traits: Traits) -> bool:
    """Whether an attempt, just looked at, is claimed whole and so never begins. Of an array of
    which a script is faster with some task, what was claimed goes back to the queue, as parts that
    are still to be handed over: the slice is what it was."""
    if attempt.order.tasks is None:
        return await asyncio.to_thread(shelf.take_back, attempt)
    if attempt.outcome is not None or attempt.cancel is not None:
        return True
    if attempt.started or attempt.ended:
        return False
    whole, taken = attempt.tasks, Runs()
    for part in attempt.parts:
        mine = part.tasks.intersection(whole)
        taken = taken.union(await asyncio.to_thread(shelf.take_claims, attempt, part, mine))
    if taken == whole:
        return True
    if taken:
        await drop(attempt, system, taken)
        attempt.tasks = whole
        await asyncio.to_thread(attempt.wrote_slice)
        attempt.parts += plan(attempt.order, taken, 0, traits, len(attempt.parts))
    return False
