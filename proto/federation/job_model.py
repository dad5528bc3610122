"""The models of a job: `JobSpec` as the broker stores it, `JobFile` as a person writes it.

They differ only in `files` and `workdir`: paths on the user's machine in the one, references to
uploaded blobs in the other. Mappings inside a frozen model are not to be changed either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from federation.accelerators import ACCELERATORS, AcceleratorRequest, at_least
from federation.job_fields import (
    Accelerators,
    Argument,
    ArrayField,
    ClusterName,
    CpusMilli,
    Deadline,
    DeadlineField,
    DiskSize,
    Duration,
    EnvName,
    Flag,
    Image,
    Integer,
    JobRef,
    LabelKey,
    LabelValue,
    Line,
    Listed,
    MemorySize,
    MicroUsd,
    Mode,
    Name,
    Path,
    RegionName,
    Script,
    Sha256,
    Size,
    TenantName,
    Text,
    Uri,
    refuse,
)
from federation.units import GIB

MAX_ENV_BYTES = 65_536
MAX_COMMAND_BYTES = 131_072
MAX_REPLICAS = 10_000
MAX_PRIORITY = 1_000
DEFAULT_PRIORITY = 100

Isolation = Literal["shared-uid", "per-user", "sandboxed", "hard"]
Outcome = Literal["failed", "lost", "preempted", "timed_out", "out_of_memory"]


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )


def _unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise refuse(f"{value} stands twice", "leave one of them out")
    return values


class BlobRef(_Part):
    """An uploaded archive (tar, gzip) of a directory."""

    archive: Sha256
    size_bytes: Annotated[Integer, Field(alias="bytes", ge=0, le=1 << 50)] = 0


class FileRef(_Part):
    """An uploaded file and where the job finds it, relative to its working directory."""

    path: Path
    sha256: Sha256
    size_bytes: Annotated[Integer, Field(alias="bytes", ge=0, le=1 << 50)] = 0
    mode: Mode = 0o644


class Resources(_Part):
    """What one replica needs (all but `replicas` are per replica)."""

    replicas: Annotated[Integer, Field(ge=1, le=MAX_REPLICAS)] = 1
    cpus_milli: CpusMilli = Field(alias="cpus", default=1_000)
    memory_bytes: MemorySize = Field(alias="memory", default=GIB)
    disk_bytes: DiskSize | None = Field(alias="disk", default=None)
    accelerators: Accelerators = ()
    accelerator_memory_bytes: MemorySize | None = Field(
        alias="accelerator_memory", default=None
    )
    topology: Literal["node", "rack", "cluster"] | None = None
    isolation: Isolation | None = None

    @property
    def accelerator_count(self) -> int:
        """Accelerators per replica (0 for a CPU job)."""
        return self.accelerators[0].count if self.accelerators else 0

    @property
    def accelerator_models(self) -> tuple[str, ...]:
        """Canonical names that will do, best liked first, those with too little memory left out."""
        return tuple(request.name for request in _enough(self))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.accelerator_memory_bytes is not None:
            if not self.accelerators:
                raise refuse(
                    "accelerator_memory without accelerators", "name them: accelerators: H100:1"
                )
            if not _enough(self):
                raise refuse(
                    "no accelerator named has the accelerator_memory asked for",
                    "name one with more memory, or ask for less",
                )
        return self


def _enough(resources: Resources) -> tuple[AcceleratorRequest, ...]:
    floor = resources.accelerator_memory_bytes
    return tuple(
        request
        for request in resources.accelerators
        if floor is None or at_least(ACCELERATORS[request.name], floor)
    )


class Checkpoint(_Part):
    """Where the job keeps its checkpoints, and how often it writes one."""

    path: Line
    interval_s: Duration | None = Field(alias="interval", default=None)


class Input(_Part):
    """Data the job reads: a known dataset, or a URI; `size` where nobody else knows it."""

    dataset: Line | None = None
    uri: Uri | None = None
    size_bytes: Size | None = Field(alias="size", default=None)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.dataset is None) == (self.uri is None):
            raise refuse("needs exactly one of dataset and uri", "write {dataset: name}")
        return self


class Output(_Part):
    """A path of the job's directory brought back at its end, or sent `to` a URI."""

    path: Path
    to: Uri | None = None


class RoundTrip(_Part):
    """At most `ms` milliseconds to the region `to`."""

    to: RegionName
    ms: Annotated[float, Field(gt=0, le=10_000, strict=True)]


class Placement(_Part):
    """Where the job may run and what that may cost."""

    policy: Name | None = None
    regions: Annotated[tuple[RegionName, ...], Field(max_length=256), AfterValidator(_unique)] = ()
    clusters: Annotated[tuple[ClusterName, ...], Field(max_length=256), AfterValidator(_unique)] = ()
    avoid: Annotated[tuple[ClusterName, ...], Field(max_length=256), AfterValidator(_unique)] = ()
    user_region: RegionName | None = None
    max_rtt: RoundTrip | None = None
    max_price_micro_usd_per_accelerator_hour: MicroUsd | None = Field(
        alias="max_price_usd_per_accelerator_hour", default=None
    )
    budget_micro_usd: MicroUsd | None = Field(alias="budget_usd", default=None)
    spot: Flag | None = None
    max_start_delay_s: Duration | None = Field(alias="max_start_delay", default=None)
    spread: Literal["node", "cluster", "region"] | None = None
    anti_affinity: Annotated[dict[LabelKey, LabelValue], Field(max_length=16)] = {}


class OnDisconnect(_Part):
    """What happens when the site of a running job falls silent; the default waits."""

    replace: Flag = False
    lost_after_s: Duration = Field(alias="lost_after", default=600)
    reconcile: Literal["keep_original", "keep_replacement", "longest_running"] = "keep_original"


class Retry(_Part):
    """How many attempts in all, and after which outcomes another one is made."""

    attempts: Annotated[Integer, Field(ge=1, le=100)] = 1
    on: Annotated[tuple[Outcome, ...], Field(max_length=5), AfterValidator(_unique)] = (
        "failed",
        "lost",
        "preempted",
    )

    @model_validator(mode="before")
    @classmethod
    def _yaml_on(cls, data: Any) -> Any:
        # YAML 1.1 reads the bare key `on` as the boolean true.
        if isinstance(data, dict) and True in data and "on" not in data:
            return {("on" if key is True else key): value for key, value in data.items()}
        return data


class Dependency(_Part):
    """A job this one waits for, and what must have become of it."""

    job: JobRef
    when: Literal["succeeded", "ended", "started"] = "succeeded"


def _dependencies(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [{"job": item} if isinstance(item, str) else item for item in value]
    return value


def _outputs(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [{"path": item} if isinstance(item, str) else item for item in value]
    return value


class _Job(_Part):
    """All that a job file and a stored spec have in common."""

    name: Name | None = None
    tenant: TenantName | None = None
    kind: Literal["batch", "training", "service", "workflow"] = "batch"
    run: Script | None = None
    command: Annotated[tuple[Argument, ...], Field(max_length=4_096)] | None = None
    image: Image | None = None
    env: Annotated[dict[EnvName, Argument], Field(max_length=4_096)] = {}
    secrets: Annotated[tuple[EnvName, ...], Field(max_length=64), AfterValidator(_unique)] = ()
    resources: Resources = Resources()
    array: ArrayField | None = None
    priority: Annotated[Integer, Field(ge=0, le=MAX_PRIORITY)] = DEFAULT_PRIORITY
    deadline: DeadlineField | None = None
    max_runtime_s: Duration | None = Field(alias="max_runtime", default=None)
    expected_runtime_s: Duration | None = Field(alias="expected_runtime", default=None)
    checkpoint: Checkpoint | None = None
    inputs: Annotated[tuple[Input, ...], Field(max_length=256)] = ()
    outputs: Annotated[
        tuple[Output, ...], Field(max_length=256), BeforeValidator(_outputs), Listed
    ] = ()
    ports: Annotated[
        tuple[Annotated[Integer, Field(ge=1, le=65_535)], ...],
        Field(max_length=64),
        AfterValidator(_unique),
    ] = ()
    placement: Placement = Placement()
    value_of_time_micro_usd_per_hour: MicroUsd | None = Field(
        alias="value_of_time_usd_per_hour", default=None
    )
    on_disconnect: OnDisconnect = OnDisconnect()
    preempt_grace_s: Duration = Field(alias="preempt_grace", default=30)
    retry: Retry = Retry()
    depends_on: Annotated[
        tuple[Dependency, ...],
        Field(max_length=1_000),
        BeforeValidator(_dependencies),
        Listed,
    ] = ()
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=64)] = {}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.run is None) == (self.command is None):
            raise refuse("needs exactly one of run and command", "write run: python train.py")
        if self.command is not None:
            _check_command(self.command)
        env_bytes = sum(len(f"{name}={value}".encode()) + 1 for name, value in self.env.items())
        if env_bytes > MAX_ENV_BYTES:
            raise refuse(f"env takes {env_bytes} bytes", f"use at most {MAX_ENV_BYTES}")
        both = set(self.env) & set(self.secrets)
        if both:
            raise refuse(f"{min(both)} is in env and in secrets", "leave one of them out")
        runtime_s, limit_s = self.expected_runtime_s, self.max_runtime_s
        if runtime_s is not None and limit_s is not None and runtime_s > limit_s:
            raise refuse("expected_runtime is longer than max_runtime", "raise max_runtime")
        return self

    @property
    def copies(self) -> int:
        """Tasks of the array, or 1."""
        return self.array.tasks.count if self.array else 1

    def deadline_ms(self, submitted_ms: int) -> int | None:
        """The deadline in UTC epoch ms of this job submitted at `submitted_ms`."""
        return self.deadline.resolve_ms(submitted_ms) if self.deadline else None


def _check_command(command: tuple[str, ...]) -> None:
    if not command or not command[0]:
        raise refuse("command names no program", 'write command: ["python", "train.py"]')
    size = sum(len(argument.encode()) + 1 for argument in command)
    if size > MAX_COMMAND_BYTES:
        raise refuse(f"command takes {size} bytes", f"use at most {MAX_COMMAND_BYTES}")


class JobSpec(_Job):
    """A job as the API takes it and the broker stores it; code and files are uploaded blobs."""

    workdir: BlobRef | None = None
    files: Annotated[tuple[FileRef, ...], Field(max_length=4_096)] = ()

    @model_validator(mode="after")
    def _one_file_a_path(self) -> Self:
        paths = [file.path for file in self.files]
        if len(set(paths)) < len(paths):
            raise refuse("files holds a path twice", "leave one of them out")
        return self


def _file_map(value: Any) -> Any:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    mapping: dict[str, str] = {}
    for item in value:
        if not isinstance(item, str):
            raise refuse("not a path", "write files: [train.py] or files: {train.py: src/train.py}")
        destination = item.rstrip("/").rpartition("/")[2]
        if destination in mapping:
            raise refuse(
                f"two files would be called {destination}", "write files: {destination: source}"
            )
        mapping[destination] = item
    return mapping


class JobFile(_Job):
    """A job as a person writes it: `workdir` and `files` are paths on their own machine.

    `files` maps the path in the job's directory to the local source; a list keeps base names.
    """

    workdir: Line | None = None
    files: Annotated[
        dict[Path, Line], Field(max_length=4_096), BeforeValidator(_file_map)
    ] = {}

    def local_paths(self) -> tuple[str | None, Mapping[str, str]]:
        """The local working directory (or None), and {path in the job's directory: local source}."""
        return self.workdir, dict(self.files)

    def resolved(self, files: Sequence[FileRef], workdir: BlobRef | None) -> JobSpec:
        """The spec to send, once its paths are uploaded; raises ValueError if any is missing."""
        missing = set(self.files) - {file.path for file in files}
        if missing or (self.workdir is not None and workdir is None):
            raise ValueError(f"not uploaded: {', '.join(sorted(missing)) or self.workdir}")
        data = self.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude={"files", "workdir"}
        )
        data["files"] = [file.model_dump(mode="json", by_alias=True) for file in files]
        if workdir is not None:
            data["workdir"] = workdir.model_dump(mode="json", by_alias=True)
        return JobSpec.model_validate(data)


__all__ = [
    "BlobRef", "Checkpoint", "Deadline", "Dependency", "FileRef", "Input", "JobFile", "JobSpec",
    "OnDisconnect", "Output", "Placement", "Resources", "Retry", "RoundTrip", "Text",
]  # fmt: skip
