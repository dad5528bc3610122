"""What a Job and its pods say of an attempt's tasks, as the port of a batch system has it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from federation.runs import Runs
from regional_agent.act.schedulers.batch.marks import outcome_of
from regional_agent.act.schedulers.batch.system import SINGLE, Account, Live, Queued
from regional_agent.act.schedulers.port import Outcome, OutcomeKind
from regional_agent.kubernetes import told
from regional_agent.kubernetes.api import Object
from regional_agent.kubernetes.told import JobTold


def rows(job: JobTold) -> Iterator[Queued]:
    """What of a Job has not ended. A pod that has a node may run already, whatever its phase:
    its kubelet tells with a delay."""
    if job.replicas > 1:
        yield from _gang_rows(job)
        return
    rest = job.indices or SINGLE
    for index, pod in job.pods.items():
        rest = rest.difference(Runs(((index, index),)))
        phase = told.phase(pod)
        if phase in told.TERMINAL:
            continue
        yield Queued(job.name, job.tag, Runs(((index, index),)), _live(pod), told.live_text(pod))
    rest = rest.difference(job.done("completedIndexes")).difference(job.done("failedIndexes"))
    if rest and not job.over:
        yield Queued(job.name, job.tag, rest, _waiting(job), _turn(job))


def _gang_rows(job: JobTold) -> Iterator[Queued]:
    """One row, while any of its pods has not ended or is still to come."""
    live = [p for _, p in sorted(job.pods.items()) if told.phase(p) not in told.TERMINAL]
    if live:
        waits = [p for p in live if _live(p) is Live.PENDING]
        yield Queued(job.name, job.tag, SINGLE, _live(live[0]), told.live_text((waits or live)[0]))
    elif not job.over and len(job.pods) < job.replicas:
        yield Queued(job.name, job.tag, SINGLE, _waiting(job), _turn(job))


def _live(pod: Object) -> Live:
    if told.phase(pod) == "Running":
        return Live.RUNNING
    waits = told.phase(pod) == "Pending" and not pod["spec"].get(told.BOUND)
    return Live.PENDING if waits else Live.UNKNOWN


def _waiting(job: JobTold) -> Live:
    """Of elements without a pod. The Job was read before or after its pods: as long as it counts
    more of them than there are, one has gone of which it has not heard, and it may not wait."""
    live = sum(told.phase(pod) not in told.TERMINAL for pod in job.pods.values())
    return Live.UNKNOWN if job.active > live else Live.PENDING


def _turn(job: JobTold) -> str:
    return "suspended, as by Kueue" if job.suspended else "waits for its turn"


def _gang_account(job: JobTold) -> Account:
    """By the pod because of which the others were ended."""
    pods = [pod for _, pod in sorted(job.pods.items())]
    if any(told.phase(pod) not in told.TERMINAL for pod in pods):
        return Account(job.name, 0, None)
    if not pods or (len(pods) < job.replicas and not job.over):
        return Account(job.name, 0, *(_without_pod(job) if job.over else (None,)))
    failed = [pod for pod in pods if told.phase(pod) == "Failed"]
    cause = min(failed, key=_consequence, default=pods[0])
    return _account(job, 0, cause)


def _consequence(pod: Object) -> tuple[bool, str]:
    """Whether a pod was only ended with its Job; and when."""
    own = told.disruption(pod) is not None or "deletionTimestamp" not in pod["metadata"]
    return not own, str(told.terminated(pod).get("finishedAt", ""))


def accounts(job: JobTold) -> Iterator[Account]:
    """How each element of a Job ended, as far as it and its pods know."""
    if job.replicas > 1:
        yield _gang_account(job)
        return
    succeeded = job.done("completedIndexes")
    failed = job.done("failedIndexes")
    for index in job.indices or SINGLE:
        pod = job.pods.get(index)
        if pod is not None:
            yield _account(job, index, pod)
        elif index in succeeded or (job.complete and job.indices is None):
            yield Account(job.name, index, Outcome(OutcomeKind.SUCCEEDED))
        elif index in failed or job.over:
            yield Account(job.name, index, *_without_pod(job))
        else:
            yield Account(job.name, index, None)


def _account(job: JobTold, index: int, pod: Object) -> Account:
    ended = told.terminated(pod)
    outcome, text = None, ""
    if told.phase(pod) in told.TERMINAL:
        outcome, text = _outcome(job, pod)
    return Account(
        local_id=job.name,
        index=index,
        outcome=outcome,
        text=f"Kubernetes says {text}" if text else "",
        started_ms=told.at_ms(ended.get("startedAt")),
        ended_ms=told.at_ms(ended.get("finishedAt")),
    )


def _outcome(job: JobTold, pod: Object) -> tuple[Outcome, str]:
    """How a pod ended, by the first of its witnesses that says more than an exit code."""
    ended = told.terminated(pod)
    if told.phase(pod) == "Succeeded":
        return Outcome(OutcomeKind.SUCCEEDED), ""
    if job.deleted:
        return Outcome(OutcomeKind.CANCELLED), "the Job was deleted"
    if ended.get("reason") == "OOMKilled":
        return Outcome(OutcomeKind.OUT_OF_MEMORY), "OOMKilled"
    if (pod.get("status") or {}).get("reason") == "DeadlineExceeded":
        return Outcome(OutcomeKind.TIMED_OUT), "DeadlineExceeded"
    taken = told.disruption(pod)
    if taken is not None:
        gone = taken[0] in told.NODE_GONE or taken[0] == "NodeLost"
        return Outcome(OutcomeKind.LOST if gone else OutcomeKind.PREEMPTED), taken[1]
    if job.suspended:
        return Outcome(OutcomeKind.PREEMPTED), "the Job was suspended"
    if "deletionTimestamp" in pod["metadata"]:
        return Outcome(OutcomeKind.CANCELLED), "its pod was deleted"
    if "exitCode" not in ended:
        return Outcome(OutcomeKind.LOST), "its pod failed, and no exit code is known"
    return outcome_of(int(ended["exitCode"])), str(ended.get("reason", ""))


def _without_pod(job: JobTold) -> tuple[Outcome, str]:
    if job.deleted:
        return Outcome(OutcomeKind.CANCELLED), "Kubernetes says the Job was deleted"
    reason, message = job.failure or ("", "")
    return Outcome(OutcomeKind.LOST), f"its pod is gone: {reason} {message}".strip()
