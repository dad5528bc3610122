"""Manifests of Kubernetes as jobs: Job, JobSet and PyTorchJob."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from broker.compat import kubernetes_values as values
from broker.compat.imported import Draft, Imported
from broker.compat.kinds import Kind
from broker.compat.kubernetes_pod import Pod, PodReader
from broker.compat.notes import short
from broker.compat.yaml_items import Item
from federation.units import format_duration

KINDS = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/", "PyTorchJob": "kubeflow.org/v1"}
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?", re.ASCII)
_BESIDE = {
    "Service": "the members of a job find each other without it",
    "Namespace": "namespaces are a cluster's own; the tenant is that of the token",
    "ServiceAccount": "the job runs with no account of a cluster",
    "ConfigMap": "objects of a cluster are not sent along",
    "PersistentVolumeClaim": "volumes of a cluster are not made",
}
_NOT_READ = "not read: this version knows Job, JobSet and PyTorchJob"


def import_kubernetes(documents: list[Item]) -> Imported:
    """The job of a manifest. Objects beside it that change nothing are told."""
    draft = Draft(Kind.KUBERNETES)
    found: list[Item] = []
    for document in documents:
        kind = _text(document.get("kind"))
        if kind == "List":
            inner = document.get("items")
            found += inner.entries() if inner else []
        elif kind in _BESIDE:
            draft.findings.ignored(document.line, kind, _BESIDE[kind])
        else:
            found.append(document)
    if len(found) != 1:
        line = found[1].line if len(found) > 1 else 0
        draft.findings.error(line, "", f"{len(found)} jobs: give each a file of its own")
        return draft.finish()
    _Manifest(draft, found[0]).read()
    return draft.finish()


def _numbered(number: str, command: list[str]) -> list[str]:
    """`command` with JOB_COMPLETION_INDEX set to what `number` is in a shell."""
    script = f'JOB_COMPLETION_INDEX={number}; export JOB_COMPLETION_INDEX; exec "$@"'
    return ["/bin/sh", "-c", script, "sh", *command]


def _text(item: Item | None) -> str:
    return (item.scalar if item else None) or ""


@dataclass(slots=True)
class _Manifest:
    draft: Draft
    root: Item

    def read(self) -> None:
        kind, version = _text(self.root.get("kind")), _text(self.root.get("apiVersion"))
        wanted = KINDS.get(kind)
        named = self.root.get("kind")
        line = named.line if named else self.root.line
        if wanted is None:
            self.draft.findings.error(line, f"kind: {short(kind, 40)}", _NOT_READ)
            return
        if not version.startswith(wanted):
            self.draft.findings.error(
                line, f"apiVersion: {short(version, 40)}", f"{kind} is read in {wanted}"
            )
            return
        self.draft.findings.understood(line, f"kind: {kind}", "a job")
        self._metadata()
        spec = self.root.get("spec")
        if spec is None or not isinstance(spec.value, dict):
            self.draft.findings.error(self.root.line, "spec", "missing")
            return
        readers: dict[str, Callable[[Item], None]] = {
            "Job": self._job,
            "JobSet": self._job_set,
            "PyTorchJob": self._torch,
        }
        readers[kind](spec)
        for key, item in self.root.items():
            if key not in ("apiVersion", "kind", "metadata", "spec", "status"):
                self.draft.findings.warning(item.line, key, "unknown key: left out")

    def _metadata(self) -> None:
        metadata = self.root.get("metadata")
        name = _text(metadata.get("name")) if metadata else ""
        name = name or (_text(metadata.get("generateName")).rstrip("-") if metadata else "")
        if name:
            self.draft.put("name", name[:128], metadata.line if metadata else 0)
        labels = metadata.get("labels") if metadata else None
        kept: dict[str, str] = {}
        for key, item in labels.items() if labels else []:
            if key == "kueue.x-k8s.io/queue-name":
                self.draft.findings.translated(
                    item.line, key, "kept as a label; queues are a site's"
                )
            if _LABEL.fullmatch(key) and isinstance(item.scalar, str) and len(kept) < 32:
                kept[key] = item.scalar[:255]
            else:
                self.draft.findings.warning(
                    item.line, key, "not usable as a label here: left out"
                )
        if kept:
            self.draft.put("labels", kept, labels.line if labels else 0)
        for key in ("namespace", "annotations"):
            local = metadata.get(key) if metadata else None
            if local is not None:
                self.draft.findings.ignored(local.line, key, "belongs to one cluster")

    # Kinds --------------------------------------------------------------------------------------

    def _job(self, spec: Item) -> None:
        pod = self._pod(spec.get("template"), spec.line)
        shape = self._shape(spec)
        self._limits(spec)
        if pod is None or shape is None:
            return
        pod.put_into(self.draft)
        self._indexed(shape)

    def _indexed(self, shape: _Shape) -> None:
        draft = self.draft
        if shape.gang:
            draft.put("resources.replicas", shape.completions, shape.line)
            draft.data["command"] = _numbered("${TRADEWIND_RANK:-0}", draft.data["command"])
        elif shape.completions > 1 or shape.indexed:
            limit = f"%{shape.parallelism}" if shape.parallelism < shape.completions else ""
            draft.put("array", f"0-{shape.completions - 1}{limit}", shape.line)
            if shape.indexed:
                draft.data["command"] = _numbered("${TRADEWIND_TASK:-0}", draft.data["command"])

    def _shape(self, spec: Item) -> _Shape | None:
        """Completions and parallelism: one run, an array, or a gang."""
        completions = self._whole(spec, "completions", 1)
        parallelism = self._whole(spec, "parallelism", 1) or 1
        line = next(
            (i.line for k in ("completions", "parallelism") if (i := spec.get(k))), spec.line
        )
        indexed = _text(spec.get("completionMode")) == "Indexed"
        findings = self.draft.findings
        if completions is None and parallelism > 1:
            findings.error(
                line,
                f"parallelism: {parallelism}",
                "workers that share a queue end when one of them does: not run here",
            )
            return None
        total = completions or 1
        template = spec.get("template", "spec", "subdomain")
        gang = indexed and template is not None and parallelism >= total > 1
        if gang:
            findings.translated(
                line,
                f"completions: {total}",
                f"resources.replicas: {total}; with a subdomain the members are one gang",
            )
        elif total > 1:
            findings.translated(
                line,
                f"completions: {total}",
                f"array of {total} tasks, at most {min(parallelism, total)} at once",
            )
        return _Shape(total, min(parallelism, total), line, indexed=indexed, gang=gang)

    def _job_set(self, spec: Item) -> None:
        findings = self.draft.findings
        item = spec.get("replicatedJobs")
        jobs = item.entries() if item else []
        if not item or not jobs:
            findings.error(spec.line, "replicatedJobs", "missing")
            return
        members, pods, each = 0, [], 1
        for job in jobs:
            inner = job.get("template", "spec")
            pod = self._pod(inner.get("template") if inner else None, job.line)
            count = self._whole(job, "replicas", 0)
            inside = self._whole(inner, "parallelism", 1) if inner else 1
            if pod is None or inner is None:
                return
            each = inside or 1
            members += (1 if count is None else count) * each
            pods.append((job.line, pod))
            self._limits(inner)
        for key, entry in spec.items():
            if key in (
                "successPolicy",
                "failurePolicy",
                "startupPolicy",
                "network",
                "coordinator",
                "ttlSecondsAfterFinished",
                "suspend",
                "managedBy",
            ):
                self._policy(key, entry)
            elif key != "replicatedJobs":
                findings.warning(entry.line, key, "unknown key: left out")
        self._one_kind(pods, members, item.line)
        if not findings.failed:
            self.draft.data["command"] = _numbered(
                f"$((${{TRADEWIND_RANK:-0}} % {each}))", self.draft.data["command"]
            )

    def _torch(self, spec: Item) -> None:
        findings = self.draft.findings
        item = spec.get("pytorchReplicaSpecs")
        members, pods = 0, []
        for role, replica in item.items() if item else []:
            if role not in ("Master", "Worker"):
                findings.error(replica.line, role, "only Master and Worker are known")
                return
            pod = self._pod(replica.get("template"), replica.line)
            if pod is None:
                return
            count = self._whole(replica, "replicas", 0)
            members += 1 if count is None else count
            pods.append((replica.line, pod))
            if (policy := replica.get("restartPolicy")) is not None:
                findings.ignored(
                    policy.line, "restartPolicy", "attempts are counted by `retry`"
                )
        if not item or not pods:
            findings.error(spec.line, "pytorchReplicaSpecs", "missing")
            return
        if (policy := spec.get("runPolicy")) is not None:
            self._limits(policy)
        if (each := spec.get("nprocPerNode")) is not None and each.scalar:
            for _, pod in pods:
                pod.env["PET_NPROC_PER_NODE"] = each.scalar
            findings.translated(each.line, "nprocPerNode", "env.PET_NPROC_PER_NODE")
        if (elastic := spec.get("elasticPolicy")) is not None:
            findings.warning(elastic.line, "elasticPolicy", "the gang has one size")
        self._one_kind(pods, members, item.line)

    def _one_kind(self, pods: list[tuple[int, Pod]], members: int, line: int) -> None:
        """All templates must ask for the same: a job has one shape."""
        first = pods[0][1]
        for other_line, pod in pods[1:]:
            if pod.needs != first.needs:
                self.draft.findings.error(
                    other_line,
                    "template",
                    "differs from the one before: the members of a job are alike",
                )
                return
        if not members:
            self.draft.findings.error(line, "replicas", "no members")
            return
        first.put_into(self.draft)
        self.draft.put("resources.replicas", members, line)
        self.draft.put("kind", "training")
        self.draft.findings.translated(
            line,
            "",
            f"resources.replicas: {members}, one gang, with RANK,"
            " WORLD_SIZE and MASTER_ADDR set",
        )

    # Parts --------------------------------------------------------------------------------------

    def _pod(self, template: Item | None, line: int) -> Pod | None:
        spec = template.get("spec") if template else None
        if spec is None or not isinstance(spec.value, dict):
            self.draft.findings.error(line, "template", "no pod template with a spec")
            return None
        return PodReader(self.draft.findings).read(spec)

    def _whole(self, place: Item, key: str, least: int) -> int | None:
        item = place.get(key)
        if item is None or item.value is None:
            return None
        try:
            return values.whole(item, least)
        except values.BadValue as error:
            self.draft.findings.error(
                item.line, f"{key}: {short(str(item.plain), 40)}", str(error)
            )
            return None

    def _limits(self, spec: Item) -> None:
        seconds = self._whole(spec, "activeDeadlineSeconds", 1)
        if seconds is not None:
            text = format_duration(seconds)
            line = spec.get("activeDeadlineSeconds")
            self.draft.put("max_runtime", text, line.line if line else 0)
            self.draft.findings.translated(
                line.line if line else 0,
                f"activeDeadlineSeconds: {seconds}",
                f"max_runtime: {text} (of one attempt)",
            )
        again = self._whole(spec, "backoffLimit", 0)
        if again is not None:
            item = spec.get("backoffLimit")
            line_no = item.line if item else 0
            self.draft.put("retry", {"attempts": min(again, 99) + 1}, line_no)
            self.draft.findings.translated(
                line_no, f"backoffLimit: {again}", f"retry.attempts: {min(again, 99) + 1}"
            )
        for key, item in spec.items():
            self._policy(key, item)

    def _policy(self, key: str, item: Item) -> None:
        findings = self.draft.findings
        if key == "suspend":
            if item.value is True:
                findings.error(
                    item.line,
                    "suspend: true",
                    "a job cannot be held before it is there:"
                    " submit it without, then `tradewind hold`",
                )
        elif key in _POLICIES_IGNORED:
            findings.ignored(item.line, key, _POLICIES_IGNORED[key])
        elif key in _POLICIES_WARNED:
            findings.warning(item.line, key, _POLICIES_WARNED[key])
        elif key not in _READ:
            findings.warning(item.line, key, "unknown key: left out")


@dataclass(frozen=True, slots=True)
class _Shape:
    completions: int
    parallelism: int
    line: int
    indexed: bool = False
    gang: bool = False


_READ = frozenset(
    (
        "template",
        "completions",
        "parallelism",
        "completionMode",
        "activeDeadlineSeconds",
        "backoffLimit",
        "suspend",
        "replicas",
    )
)
_POLICIES_IGNORED = {
    "ttlSecondsAfterFinished": "ended jobs leave by themselves",
    "manualSelector": "pods are not selected here",
    "selector": "pods are not selected here",
    "managedBy": "the broker manages it",
    "cleanPodPolicy": "nothing is left over",
    "podReplacementPolicy": "an attempt is replaced when it has ended",
    "network": "the members of a gang find each other by MASTER_ADDR",
    "coordinator": "rank 0 is the head",
    "startupPolicy": "the members of a gang start together",
}
_POLICIES_WARNED = {
    "podFailurePolicy": "not carried over: `retry.on` says after which outcomes",
    "successPolicy": "the job succeeds when all its members do",
    "failurePolicy": "not carried over: `retry` says how often",
    "backoffLimitPerIndex": "not carried over: `retry` says how often",
    "maxFailedIndexes": "not carried over: a failed task stops no other",
    "schedulingPolicy": "gangs start together; the rest is not carried over",
}
