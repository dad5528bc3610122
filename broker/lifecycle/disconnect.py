"""When the attempt of a silent site may be replaced, and whose result counts afterwards. Pure.

A site that can fence stops an attempt `fence_after_s` after the last heartbeat a leader answered,
and has killed what is left of it `stop_grace_s` later. The leader counts the same silence from its
own last answer, which is never the earlier one, and waits a tenth longer: clocks run apart.
"""

from __future__ import annotations

from broker.model.jobs import Attempt, Job, OutcomeKind, Reconcile
from federation.runs import Runs

CLOCKS_APART = 1.1


def replace_after_s(attempt: Attempt) -> float:
    """How long its site has to be silent before another attempt may take its place; only of an
    attempt with a contact deadline."""
    return (attempt.fence_after_s + attempt.stop_grace_s) * CLOCKS_APART


def may_replace(attempt: Attempt, silent_s: float) -> bool:
    """Whether it is certain that its site, silent for so long, runs it no more."""
    fenced = attempt.counts and attempt.fence_after_s > 0
    return fenced and silent_s > replace_after_s(attempt)


def keeps_original(
    rule: Reconcile, original: Attempt, replacement: Attempt | None, now_ms: int
) -> bool:
    """Whether the result of an ended original counts. Only a success is worth keeping: whatever
    else came of it, the replacement is the next try. Without a live replacement nothing else
    is to be had."""
    if original.outcome is None or original.outcome.kind is not OutcomeKind.SUCCEEDED:
        return False
    if replacement is None or rule is Reconcile.KEEP_ORIGINAL:
        return True
    if rule is Reconcile.KEEP_REPLACEMENT:
        return False
    return _ran_ms(original, original.ended_ms) >= _ran_ms(replacement, now_ms)


def kept_of_original(rule: Reconcile, job: Job, original: Attempt) -> Runs:
    """The tasks of a superseded slice whose success, told late, counts. One that nobody has in hand
    any more counts whatever the rule; one that ran to its end has run longest."""
    if rule is not Reconcile.KEEP_REPLACEMENT:
        return original.tasks
    return original.tasks.intersection(job.unassigned_tasks)


def _ran_ms(attempt: Attempt, until_ms: int) -> int:
    return max(until_ms - attempt.started_ms, 0) if attempt.started_ms else 0
