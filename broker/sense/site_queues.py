"""The queues of sites as a decision sees them, and how long what waits there still will. Pure."""

from __future__ import annotations

from broker.model.jobs import Attempt
from broker.model.problem import Queue
from federation.local_queue import LocalQueue

WAITING_LEAST_USD = 0.01
"""An hour of waiting costs, per accelerator, what an hour of running costs there, and at least
this: so that a job which says nothing of its time waits a tenth of its run to save a tenth, and
leaves a queue that is free for a place that is."""


def joined_queue(said: LocalQueue | None, room: int, price_usd: float) -> Queue | None:
    """The queue of a pool for a decision; `room`: how many more of our jobs may wait at the site.
    None where there is none, or where nobody knows how long it takes: also where a small job
    would start at once, for then the queue says nothing of one that finds no room."""
    if said is None or not said.start_p50_ms:
        return None
    if said.pending_max:
        room = min(room, said.pending_max)
    waiting_usd = max(price_usd, WAITING_LEAST_USD)
    return Queue(said.start_p50_ms / 1000, max(room, 0), waiting_usd)


def left_s(attempt: Attempt, said: LocalQueue | None, now_ms: int) -> float:
    """How many seconds more one in a queue is expected to wait: what was expected when it joined
    less what it waited; past that what nine of ten keep; past that, nothing is known of it but
    what one that joins now would wait. Never longer than that."""
    waited_ms = max(now_ms - attempt.placed_ms, 0)
    new_ms = said.start_p50_ms if said is not None else None
    for expected_ms in (attempt.expected_start_delay_ms, attempt.expected_start_p90_ms):
        if expected_ms > waited_ms:
            left_ms = expected_ms - waited_ms
            return (left_ms if not new_ms else min(left_ms, new_ms)) / 1000
    return (new_ms or max(attempt.expected_start_p90_ms, 1)) / 1000
