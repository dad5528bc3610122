"""What a job must be to be taken on: the tenant's limits, and what this version can run.

A key that would be ignored is refused instead, naming what to do: a job that quietly runs
otherwise than asked is worse than one that does not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from broker.model.data import Datasets
from broker.model.fleet import FENCE, ClusterIdentity, ClusterState, TenantPolicy
from federation.jobs import Deadline, FieldError, JobSpec
from federation.units import format_duration, format_utc

_Rule = tuple[str, Callable[[JobSpec], Any], str, str]

LOST_AFTER_MIN_S = 60
_LEAVE_OUT = "leave it out"


def _outlives(path: str) -> bool:
    """Whether a path leads out of the directory of the attempt."""
    return path.startswith("/") or "://" in path


# (path, what is asked for or a false value, problem, remedy)
_NOT_YET: tuple[_Rule, ...] = (
    (
        "kind",
        lambda s: s.kind in ("service", "workflow") and s.kind,
        "this version runs batch and training jobs only",
        "write kind: batch",
    ),
    (
        "secrets",
        lambda s: s.secrets,
        "this version has no sealed secrets yet",
        "keep the secret at the site, or have the job fetch it",
    ),
    ("ports", lambda s: s.ports, "this version publishes no ports", _LEAVE_OUT),
    (
        "checkpoint.path",
        lambda s: s.checkpoint and not _outlives(s.checkpoint.path) and s.checkpoint.path,
        "lies in the directory of one attempt: the next one would not find it",
        "name a place that every attempt can read, such as /shared/ckpt or s3://bucket/ckpt",
    ),
    (
        "resources.isolation",
        lambda s: s.resources.isolation == "hard" and "hard",
        "no kind of site of this version gives hard isolation",
        "ask for sandboxed, or leave it out",
    ),
    (
        "outputs",
        lambda s: next((o.to for o in s.outputs if o.to), None),
        "this version brings results back as blobs and sends none to URIs",
        "write the path alone and fetch it with tradewind fetch",
    ),
)


def unsupported(spec: JobSpec) -> list[FieldError]:
    """What the spec asks for and this version does not do, each with a remedy."""
    faults = []
    for path, asked, problem, remedy in _NOT_YET:
        value = asked(spec)
        if value:
            shown = value if isinstance(value, str) else ""
            faults.append(FieldError(path, shown, problem, remedy))
    return faults


def input_faults(spec: JobSpec, datasets: Datasets) -> list[FieldError]:
    """What is wrong with the inputs: nothing can be decided by what nobody knows the size or the
    place of."""
    faults = []
    for number, item in enumerate(spec.inputs):
        path = f"inputs[{number}]"
        if item.dataset is None:
            if item.size_bytes is None:
                problem = "nobody else knows how large it is"
                faults.append(FieldError(f"{path}.size", "", problem, "write size: 1.5TiB"))
            if not item.regions:
                problem = "nobody else knows where it lies"
                remedy = "write regions: [eu-west], those that have all of it"
                faults.append(FieldError(f"{path}.regions", "", problem, remedy))
        elif item.dataset not in datasets:
            known = ", ".join(sorted(datasets)[:10])
            remedy = f"known: {known}" if known else "an operator makes it: tradewind datasets set"
            faults.append(FieldError(f"{path}.dataset", item.dataset, "no such dataset", remedy))
        elif item.size_bytes is not None or item.regions:
            key = "size" if item.size_bytes is not None else "regions"
            problem = "the dataset knows it itself"
            faults.append(FieldError(f"{path}.{key}", "", problem, _LEAVE_OUT))
    return faults


def replace_faults(
    spec: JobSpec, clusters: Callable[[], Mapping[str, ClusterIdentity]]
) -> list[FieldError]:
    """What is wrong with `on_disconnect` of a job that is to be replaced: a wait that a few late
    heartbeats would outlast, or places of which none can stop the job by itself. A cluster that
    has never spoken may turn out to."""
    if not spec.on_disconnect.replace:
        return []
    faults = []
    if spec.on_disconnect.lost_after_s < LOST_AFTER_MIN_S:
        shown, least = format_duration(spec.on_disconnect.lost_after_s), LOST_AFTER_MIN_S
        problem = "a site is not lost for a few late heartbeats"
        remedy = f"write {format_duration(least)} or more"
        faults.append(FieldError("on_disconnect.lost_after", shown, problem, remedy))
    allowed = [each for each in clusters().values() if _allowed(spec, each)]
    if allowed and not any(FENCE in each.capabilities or not each.instance for each in allowed):
        names = ", ".join(sorted(each.name for each in allowed)[:10])
        problem = f"no site the job may run at stops it by itself when its contact ends ({names})"
        remedy = f"{_LEAVE_OUT}: the job waits for its site; or allow a cluster with a fence"
        faults.append(FieldError("on_disconnect.replace", "", problem, remedy))
    return faults


def _allowed(spec: JobSpec, cluster: ClusterIdentity) -> bool:
    place, names = spec.placement, {str(cluster.name), str(cluster.region)}
    return (
        cluster.state is not ClusterState.REMOVED
        and (not place.clusters or cluster.name in place.clusters)
        and (not place.regions or cluster.region in place.regions)
        and not names.intersection(place.avoid)
    )


@dataclass(frozen=True, slots=True)
class Completed:
    """A spec with its tenant, deadline and runtime filled in, or what is wrong with it."""

    spec: JobSpec
    errors: tuple[FieldError, ...] = ()


def complete(spec: JobSpec, policy: TenantPolicy, now_ms: int) -> Completed:
    """Fill in what the tenant decides and make the deadline a moment.

    Without a max_runtime the tenant's default holds, or twice the expected runtime where that
    is longer: a job said to take thirty days is not cut off after one.
    """
    errors = unsupported(spec)
    limit_s, most_s = spec.max_runtime_s, policy.max_runtime_s
    if limit_s is None:
        limit_s = min(policy.default_max_runtime_s, most_s)
        if spec.expected_runtime_s is not None:
            limit_s = max(limit_s, min(2 * spec.expected_runtime_s, most_s))
    longest_s = max(limit_s, spec.expected_runtime_s or 0)
    if longest_s > most_s:
        path = "max_runtime" if spec.max_runtime_s else "expected_runtime"
        errors.append(
            FieldError(
                path,
                format_duration(longest_s),
                f"tenant {policy.name} may run jobs for at most {format_duration(most_s)}",
                f"write {format_duration(most_s)} or less, or ask an operator for more",
            )
        )
    changes: dict[str, Any] = {"tenant": policy.name, "max_runtime_s": limit_s}
    if spec.deadline is not None:
        at_ms = spec.deadline.resolve_ms(now_ms)
        if at_ms <= now_ms:
            errors.append(FieldError("deadline", format_utc(at_ms), "is past", "write a later one"))
        changes["deadline"] = Deadline(at_ms=at_ms)
    return Completed(spec.model_copy(update=changes), tuple(errors))


def display_name(spec: JobSpec) -> str:
    """What a list shows the job under: its name, else the program it starts."""
    if spec.name:
        return spec.name
    if spec.command:
        return _printable(PurePosixPath(spec.command[0]).name)
    words = (spec.run or "").split()
    return _printable(PurePosixPath(words[0]).name) if words else ""


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable())[:40]


def blobs_named(spec: JobSpec) -> dict[str, str]:
    """sha256 -> path in the spec of every uploaded blob the job starts with."""
    named = {file.sha256: f"files[{i}]" for i, file in enumerate(spec.files)}
    if spec.workdir is not None:
        named[spec.workdir.archive] = "workdir.archive"
    return named
