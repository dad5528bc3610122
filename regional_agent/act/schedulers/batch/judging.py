"""What to make of an attempt, or of a row of the queue: questions without effects."""

from __future__ import annotations

from regional_agent.act.schedulers.batch.attempt import Attempt, TaskEnd
from regional_agent.act.schedulers.batch.parts import Part
from regional_agent.act.schedulers.batch.system import Queued
from regional_agent.act.schedulers.port import Outcome, OutcomeKind

SAMPLED_EVERY_MS = 30_000
"""JobAcctGatherFrequency, where a site does not say otherwise."""


def tag_of(attempt: Attempt, part: Part) -> str:
    """What proves that a job is this part of this attempt."""
    if part.pack:
        return f"tradewind:{part.pack}:pack"
    return f"tradewind:{attempt.uid}:{part.nth}"


def is_over(attempt: Attempt) -> bool:
    """Whether nothing of it runs or can begin, and how it ended is sure."""
    if attempt.cancel is not None:
        gone = attempt.left_queue or not any(p.intended_ms for p in attempt.parts)
        return gone and not attempt.running
    if not attempt.parts or attempt.tasks.difference(attempt.ended):
        return False
    return all(end.sure for end in attempt.ends.values())


def brief(attempt: Attempt) -> bool:
    """Whether its ends are sure and none ran long enough for the batch system to have sampled its
    memory: then its marks say all there is to know, and nothing waits for the books."""
    ends = attempt.ends.values()
    return all(end.sure and end.wall_ms < SAMPLED_EVERY_MS for end in ends)


def expects(attempt: Attempt) -> bool:
    """Whether the queue or the books will have news of it soon."""
    unsure = any(not end.sure for end in attempt.ends.values())
    return attempt.cancel is not None or unsure or is_over(attempt) or bool(attempt.gone_since_s)


def copy_ended(mark: TaskEnd, said: Outcome) -> bool:
    """Whether the books tell of a second copy, which found the claim of one that the site had
    stopped and succeeded unrun."""
    succeeded = OutcomeKind.SUCCEEDED
    return mark.stopped and mark.outcome.kind is not succeeded and said.kind is succeeded


def unmarked(said: Outcome, *, begun: bool) -> Outcome:
    """What to make of an end the books call ordinary, of a task that left no mark: its script
    was killed, or never got as far as the claim."""
    if begun and said.kind is not OutcomeKind.SUCCEEDED:
        return said
    return Outcome(OutcomeKind.LOST)


def called(row: Queued) -> list[str]:
    """What its job, or each of its elements, is called."""
    if not row.pack:
        return [row.local_id]
    return [f"{row.local_id}_{index}" for index in row.indices]
