"""The models of a job: `JobSpec` as the broker stores it, `JobFile` as a person writes it.

They differ only in `files` and `workdir`: paths on the user's machine in the one, references to
uploaded blobs in the other. Mappings inside a frozen model are not to be changed either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from federation.job_fields import (
    Argument,
    ArrayField,
    DeadlineField,
    Duration,
    EnvName,
    Flag,
    Image,
    Integer,
    LabelKey,
    LabelValue,
    Line,
    MicroUsd,
    Name,
    Path,
    Script,
    TenantName,
    at_most,
    refuse,
)
from federation.job_parts import (
    BlobRef,
    Checkpoint,
    Dependency,
    FileRef,
    Input,
    OnDisconnect,
    Output,
    Part,
    Placement,
    Resources,
    Retry,
    unique,
)

MAX_ENV_BYTES = 65_536
MAX_COMMAND_BYTES = 131_072
MAX_PRIORITY = 1_000
DEFAULT_PRIORITY = 100

Port = Annotated[Integer, Field(ge=1, le=65_535)]


def _short_form(key: str) -> Callable[[Any], Any]:
    """Reads a plain text in a list as the mapping that has it under `key`."""

    def read(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [{key: item} if isinstance(item, str) else item for item in value]
        return value

    return read


Command = Annotated[tuple[Argument, ...], Field(max_length=4_096), at_most(4_096)]


class Program(Part):
    """The part of a job by which those of a sweep differ: what it is called and what it runs."""

    name: Name | None = None
    run: Script | None = None
    command: Command | None = None

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        _check_program(self.run, self.command)
        return self


class _Job(Part):
    """All that a job file and a stored spec have in common."""

    name: Name | None = None
    tenant: TenantName | None = None
    kind: Literal["batch", "training", "service", "workflow"] = "batch"
    run: Script | None = None
    command: Command | None = None
    image: Image | None = None
    env: Annotated[dict[EnvName, Argument], Field(max_length=4_096), at_most(4_096)] = {}
    secrets: Annotated[
        tuple[EnvName, ...], Field(max_length=64), AfterValidator(unique), at_most(64)
    ] = ()
    resources: Resources = Resources.model_construct()
    array: ArrayField | None = None
    priority: Annotated[Integer, Field(ge=0, le=MAX_PRIORITY)] = DEFAULT_PRIORITY
    deadline: DeadlineField | None = None
    max_runtime_s: Duration | None = Field(alias="max_runtime", default=None)
    expected_runtime_s: Duration | None = Field(alias="expected_runtime", default=None)
    checkpoint: Checkpoint | None = None
    movable: Flag | None = None
    defer_s: Duration | None = Field(alias="defer", default=None)
    inputs: Annotated[tuple[Input, ...], Field(max_length=256), at_most(256)] = ()
    outputs: Annotated[
        tuple[Output, ...],
        Field(max_length=256),
        BeforeValidator(_short_form("path")),
        at_most(256),
    ] = ()
    ports: Annotated[
        tuple[Port, ...], Field(max_length=64), AfterValidator(unique), at_most(64)
    ] = ()
    placement: Placement = Placement.model_construct()
    value_of_time_micro_usd_per_hour: MicroUsd | None = Field(
        alias="value_of_time_usd_per_hour", default=None
    )
    on_disconnect: OnDisconnect = OnDisconnect.model_construct()
    preempt_grace_s: Duration = Field(
        alias="preempt_grace", default=30, json_schema_extra={"default": "30s"}
    )
    retry: Retry = Retry.model_construct()
    depends_on: Annotated[
        tuple[Dependency, ...],
        Field(max_length=1_000),
        BeforeValidator(_short_form("job")),
        at_most(1_000),
    ] = ()
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=64), at_most(64)] = {}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        _check_program(self.run, self.command)
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

    @property
    def may_move(self) -> bool:
        """Whether it may be stopped and go on elsewhere while it runs: where it says so, and,
        where it says nothing, if it is known how much of its work that can lose."""
        if self.movable is not None:
            return self.movable
        return self.checkpoint is not None and bool(self.checkpoint.interval_s)

    @property
    def apart_on_nodes(self) -> Literal["tasks", "members", ""]:
        """What of it must have nodes of its own: all that runs of an array, the members of a gang,
        or nothing, also where there is nothing else of the job to share a node with."""
        if self.placement.spread != "node":
            return ""
        if self.array is not None:
            return "tasks"
        alone = self.resources.replicas == 1 or self.resources.topology == "node"
        return "" if alone else "members"

    def deadline_ms(self, submitted_ms: int) -> int | None:
        """The deadline in UTC epoch ms of this job submitted at `submitted_ms`."""
        return self.deadline.resolve_ms(submitted_ms) if self.deadline else None


RUN_OR_COMMAND = "needs exactly one of run and command"
RUN_REMEDY = "write for example run: python train.py"


def _check_program(run: str | None, command: tuple[str, ...] | None) -> None:
    if (run is None) == (command is None):
        raise refuse(RUN_OR_COMMAND, RUN_REMEDY)
    if command is not None:
        _check_command(command)


def _check_command(command: tuple[str, ...]) -> None:
    if not command or not command[0]:
        raise refuse("command names no program", 'write command: ["python", "train.py"]')
    size_bytes = sum(len(argument.encode()) + 1 for argument in command)
    if size_bytes > MAX_COMMAND_BYTES:
        raise refuse(f"command takes {size_bytes} bytes", f"use at most {MAX_COMMAND_BYTES}")


class JobSpec(_Job):
    """A job as the API takes it and the broker stores it; code and files are uploaded blobs."""

    workdir: BlobRef | None = None
    files: Annotated[tuple[FileRef, ...], Field(max_length=4_096), at_most(4_096)] = ()

    @model_validator(mode="after")
    def _one_file_a_path(self) -> Self:
        paths = {file.path for file in self.files}
        if len(paths) < len(self.files):
            raise refuse("files holds a path twice", "leave one of them out")
        for path in paths:
            parents = path.split("/")[:-1]
            for depth in range(1, len(parents) + 1):
                if "/".join(parents[:depth]) in paths:
                    raise refuse(f"files has {path} and its parent as a file", "rename one of them")
        return self


def _file_map(value: Any) -> Any:
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

    `files` maps the path in the job's directory to the local source, a file or a directory; a
    list keeps base names.
    """

    workdir: Line | None = None
    files: Annotated[
        dict[Path, Line], Field(max_length=4_096), BeforeValidator(_file_map), at_most(4_096)
    ] = {}

    def local_paths(self) -> tuple[str | None, Mapping[str, str]]:
        """The local working directory, if any, and {path in the job: local source}."""
        return self.workdir, dict(self.files)

    def resolved(self, files: Sequence[FileRef], workdir: BlobRef | None) -> JobSpec:
        """The spec to send, once its paths are uploaded; a directory is many FileRefs.

        Raises ValueError (pydantic's ValidationError is one) when something the file names was
        not uploaded or two references meet on one path.
        """
        for path in self.files:
            if not any(ref.path == path or ref.path.startswith(f"{path}/") for ref in files):
                raise ValueError(f"files: {path} was not uploaded")
        if self.workdir is not None and workdir is None:
            raise ValueError(f"workdir: {self.workdir} was not uploaded")
        data = self.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude={"files", "workdir"}
        )
        data["files"] = [ref.model_dump(mode="json", by_alias=True) for ref in files]
        if workdir is not None:
            data["workdir"] = workdir.model_dump(mode="json", by_alias=True)
        return JobSpec.model_validate(data)
