"""Jobs: reading the public format, its canonical bytes, and the class a job belongs to.

`parse_job_spec` takes what reaches the API, `parse_job_file` what a person wrote; both say
everything that is wrong at once. See docs/job-spec.md for the format.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from typing import Any

from pydantic import ValidationError

from federation.job_errors import FieldError, InvalidJob, explain
from federation.job_fields import ArraySpec, Deadline
from federation.job_model import (
    DEFAULT_PRIORITY,
    MAX_PRIORITY,
    RUN_OR_COMMAND,
    RUN_REMEDY,
    JobFile,
    JobSpec,
)
from federation.job_parts import (
    MAX_REPLICAS,
    BlobRef,
    Checkpoint,
    Dependency,
    FileRef,
    Input,
    OnDisconnect,
    Output,
    Placement,
    Resources,
    Retry,
    RoundTrip,
)
from federation.units import MAX_DURATION_S

__all__ = [
    "DEFAULT_PRIORITY", "MAX_PRIORITY", "MAX_REPLICAS", "ArraySpec", "BlobRef", "Checkpoint",
    "Deadline", "Dependency", "FieldError", "FileRef", "Input", "InvalidJob", "JobFile", "JobSpec",
    "OnDisconnect", "Output", "Placement", "Resources", "Retry", "RoundTrip", "canonical_bytes",
    "canonical_data", "canonical_text", "class_key", "deadline_bucket_ms", "parse_job_file",
    "parse_job_spec", "runtime_bucket_s", "spec_digest",
]  # fmt: skip

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
DEADLINE_BUCKET_MS = 15 * 60 * 1000


def parse_job_spec(data: object) -> JobSpec:
    """`data` (parsed JSON or YAML) as a spec; raises InvalidJob with every error."""
    try:
        return JobSpec.model_validate(data)
    except ValidationError as error:
        raise _all_errors(error, data, JobSpec) from None


def parse_job_file(data: object) -> JobFile:
    """`data` (parsed YAML or JSON) as a user's job file; raises InvalidJob with every error."""
    try:
        return JobFile.model_validate(data)
    except ValidationError as error:
        raise _all_errors(error, data, JobFile) from None


def _all_errors(
    error: ValidationError, data: object, model: type[JobSpec] | type[JobFile]
) -> InvalidJob:
    invalid = explain(error, data, model)
    # A rule over several keys is looked at only once each key is right; this one is told always.
    if not isinstance(data, dict) or any(not fault.path for fault in invalid.errors):
        return invalid
    if (data.get("run") is None) != (data.get("command") is None):
        return invalid
    return InvalidJob([*invalid.errors, FieldError("", "", RUN_OR_COMMAND, RUN_REMEDY)])


def canonical_bytes(spec: JobSpec) -> bytes:
    """The one JSON text of a spec: keys sorted, compact, UTF-8, defaults left out."""
    return canonical_text(canonical_data(spec))


def canonical_data(spec: JobSpec) -> dict[str, Any]:
    """What `canonical_bytes` writes, as JSON values."""
    return spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def canonical_text(data: object) -> bytes:
    """The bytes of what `canonical_data` gave, or of a part of it."""
    return _CANONICAL.encode(data).encode()


def spec_digest(data: bytes) -> str:
    """Lower-case hex sha256 of a spec's stored bytes (never of bytes made anew)."""
    return hashlib.sha256(data).hexdigest()


def _steps() -> list[int]:
    steps = [1]
    while steps[-1] < MAX_DURATION_S:
        steps.append(max(steps[-1] + 1, steps[-1] * 11 // 10))
    return steps


_STEPS = _steps()


def runtime_bucket_s(seconds: int) -> int:
    """The runtime a class of jobs is planned with: `seconds` rounded up to the next 10 % step."""
    return _STEPS[min(bisect_left(_STEPS, seconds), len(_STEPS) - 1)]


def deadline_bucket_ms(at_ms: int) -> int:
    """The deadline a class is planned with: rounded down to a quarter of an hour (never later)."""
    return at_ms // DEADLINE_BUCKET_MS * DEADLINE_BUCKET_MS


def class_key(spec: JobSpec, default_runtime_s: int) -> str:
    """A digest over all that decides where and when a copy of the job runs, and only that.

    Not name, env, command, files, labels, retry, or how many tasks there are; the order of a list
    says nothing. Runtimes count in 10 % steps, deadlines in quarters of an hour;
    `default_runtime_s` stands in for a missing max_runtime. A relative deadline counts in 10 %
    steps: make it absolute first. Labels count only where anti_affinity makes them decide.
    """
    data = spec.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, include=_DECIDING_FIELDS
    )
    data["resources"] = _deciding_resources(spec.resources)
    for places in ("regions", "clusters", "avoid"):
        if places in data.get("placement", {}):
            data["placement"][places].sort()
    if "inputs" in data:
        data["inputs"].sort(key=lambda entry: json.dumps(entry, sort_keys=True))
    data.update(_deciding_times(spec, default_runtime_s))
    data["ports"] = bool(spec.ports)
    data["fence"] = spec.on_disconnect.replace
    if spec.placement.anti_affinity:
        data["labels"] = spec.labels
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_DECIDING_FIELDS = {
    "tenant",
    "kind",
    "image",
    "priority",
    "inputs",
    "placement",
    "value_of_time_micro_usd_per_hour",
}


def _deciding_resources(resources: Resources) -> dict[str, object]:
    data = resources.model_dump(
        mode="json",
        by_alias=True,
        exclude_defaults=True,
        exclude={"accelerators", "accelerator_memory_bytes"},
    )
    if "features" in data:
        data["features"] = sorted(resources.features)
    # What memory was asked for decides only through the models it leaves.
    data["models"] = sorted(resources.accelerator_models)
    data["count"] = resources.accelerator_count
    return data


def _deciding_times(spec: JobSpec, default_runtime_s: int) -> dict[str, object]:
    limit_s = spec.max_runtime_s or default_runtime_s
    data: dict[str, object] = {
        "max_runtime": runtime_bucket_s(limit_s),
        "expected_runtime": runtime_bucket_s(spec.expected_runtime_s or limit_s),
    }
    if spec.deadline is not None and spec.deadline.at_ms is not None:
        data["deadline"] = deadline_bucket_ms(spec.deadline.at_ms)
    elif spec.deadline is not None:
        data["deadline_after"] = runtime_bucket_s(spec.deadline.after_s or 1)
    if spec.checkpoint is not None:  # how much work a move may lose
        data["checkpoint"] = runtime_bucket_s(spec.checkpoint.interval_s or 1)
    return data
