"""What Jobs and pods say, as the port of a batch system has it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from federation.runs import Runs, parse_runs
from federation.units import parse_rfc3339_ms
from regional_agent.kubernetes.api import (
    CONTAINER,
    DIRECTORY,
    INDEX,
    INDICES,
    JOB_NAME,
    JOB_NAME_OLD,
    JOBSET,
    JOBSET_NAME,
    REPLICAS,
    TAG,
    Object,
)

COMPLETE = ("Complete", "Completed")
"""A Job's condition, and a JobSet's."""
_COUNTS = ("active", "ready", "succeeded", "failed")
BOUND, TERMINAL = "nodeName", ("Succeeded", "Failed")
_FACTORS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
            "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}  # fmt: skip
NODE_GONE = frozenset({"DeletionByPodGC", "DeletionByTaintManager"})
"""Reasons of the condition DisruptionTarget, the rest of which are preemptions and evictions:
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions"""


@dataclass(frozen=True, slots=True)
class JobTold:
    """One of our Jobs or JobSets. `over`: it will start no pod any more. `pods`: the newest by
    index."""

    body: Object
    pods: Mapping[int, Object]

    @property
    def name(self) -> str:
        """The local id: its name, that of a JobSet after `jobset/`."""
        return local_id(self.body)

    @property
    def note(self) -> Mapping[str, str]:
        """Its annotations."""
        return self.body["metadata"].get("annotations") or {}

    @property
    def tag(self) -> str:
        """Whose it is; empty for none of ours."""
        return self.note.get(TAG, "")

    @property
    def indices(self) -> Runs | None:
        """Of its elements; None if it is no array."""
        said = self.note.get(INDICES, "")
        return parse_runs(said) if said else None

    @property
    def replicas(self) -> int:
        """Members of a gang; 1 if it is none."""
        return int(self.note.get(REPLICAS, 1))

    @property
    def active(self) -> int:
        """Pods that have not ended, as its controller counted them last. A JobSet counts Jobs: of
        one that has begun all have to be reckoned with."""
        status = self.body.get("status") or {}
        if self.body.get("kind") != "JobSet":
            return int(status.get("active") or 0)
        counts = (each.get(k) for each in status.get("replicatedJobsStatus") or () for k in _COUNTS)
        return self.replicas if not self.suspended and (self.pods or any(counts)) else 0

    @property
    def deleted(self) -> bool:
        """Somebody deleted it; it is there until its finalizers are gone."""
        return "deletionTimestamp" in self.body["metadata"]

    @property
    def suspended(self) -> bool:
        """Held back, as by Kueue."""
        return bool(self.body["spec"].get("suspend"))

    @property
    def failure(self) -> tuple[str, str] | None:
        """Reason and message of its failure."""
        for each in self.conditions:
            if each.get("type") == "Failed" and each.get("status") == "True":
                return str(each.get("reason", "")), str(each.get("message", ""))
        return None

    @property
    def complete(self) -> bool:
        """All of it succeeded."""
        return any(e.get("type") in COMPLETE and e["status"] == "True" for e in self.conditions)

    @property
    def conditions(self) -> list[dict[str, Any]]:
        """Its conditions."""
        return (self.body.get("status") or {}).get("conditions") or []

    @property
    def over(self) -> bool:
        """See above."""
        return self.deleted or self.complete or self.failure is not None

    def element(self, completion_index: int) -> int:
        """The index of an element, of which Kubernetes counts from 0."""
        return completion_index + (self.indices.runs[0][0] if self.indices else 0)

    def done(self, which: str) -> Runs:
        """Elements in `completedIndexes` or `failedIndexes`."""
        said = str((self.body.get("status") or {}).get(which) or "")
        if not said:
            return Runs()
        at = self.element(0)
        return Runs.of((a + at, b + at) for a, b in parse_runs(said).runs)


def jobs_told(jobs: Iterable[Object], pods: Iterable[Object]) -> list[JobTold]:
    """Our Jobs and JobSets with their pods."""
    by_job: dict[str, list[Object]] = defaultdict(list)
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        name = labels.get(JOB_NAME) or labels.get(JOB_NAME_OLD, "")
        if JOBSET_NAME in labels:
            name = JOBSET + labels[JOBSET_NAME]
        by_job[name].append(pod)
    found = []
    for job in jobs:
        newest: dict[int, Object] = {}
        for pod in sorted(by_job[local_id(job)], key=_made):
            newest[_index(job, pod)] = pod
        found.append(JobTold(job, newest))
    return [each for each in found if each.tag and DIRECTORY in each.note]


def local_id(job: Object) -> str:
    """What a Job or JobSet is called here."""
    return (JOBSET if job.get("kind") == "JobSet" else "") + str(job["metadata"]["name"])


def live_text(pod: Object) -> str:
    """What a pod that has not begun waits for, in the words of the cluster."""
    status = pod.get("status") or {}
    for each in status.get("containerStatuses") or ():
        waiting = (each.get("state") or {}).get("waiting")
        if waiting:
            return _sentence(waiting)
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return _sentence(each)
    return str(status.get("phase", ""))


def phase(pod: Object) -> str:
    """Pending, Running, Succeeded, Failed, or what this version has not heard of."""
    return str((pod.get("status") or {}).get("phase", ""))


def disruption(pod: Object) -> tuple[str, str] | None:
    """Reason and sentence of who took a pod away."""
    status = pod.get("status") or {}
    if status.get("reason") in ("Evicted", "Preempting", "NodeLost", "Terminated", "NodeShutdown"):
        return str(status["reason"]), _sentence(status)
    for each in status.get("conditions") or ():
        if each.get("type") == "DisruptionTarget" and each.get("status") == "True":
            return str(each.get("reason", "")), _sentence(each)
    return None


def terminated(pod: Object) -> Mapping[str, Any]:
    """How the job's container in a pod ended: `exitCode`, `reason`, `startedAt`, `finishedAt`."""
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        ended: Mapping[str, Any] | None = (each.get("state") or {}).get("terminated")
        if ended and each.get("name", CONTAINER) == CONTAINER:
            return ended
    return {}


def at_ms(said: object) -> int:
    """A time of the API as epoch ms; 0 for none."""
    return parse_rfc3339_ms(str(said)) if said else 0


def _made(pod: Object) -> tuple[str, str]:
    metadata = pod["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata["name"])


def _index(job: Object, pod: Object) -> int:
    said = (pod["metadata"].get("annotations") or {}).get(INDEX, "0")
    notes = job["metadata"].get("annotations") or {}
    first = parse_runs(notes[INDICES]).runs[0][0] if notes.get(INDICES) else 0
    return first + int(said)


def _sentence(said: Mapping[str, Any]) -> str:
    return ": ".join(str(said[k]) for k in ("reason", "message") if said.get(k))


def amount_of(said: object) -> float:
    """An amount such as `500m`, `2Gi`, `4` or `1e3`; 0 for none.
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""
    text = str(said or 0)
    number = text.rstrip("numkKMGTPi")
    return float(number) * _FACTORS.get(text[len(number) :], 1.0)
