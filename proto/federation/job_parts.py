"""The nested parts of a job: resources, placement, data, retry, and references to blobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from federation.accelerators import ACCELERATORS, AcceleratorRequest, at_least
from federation.job_fields import (
    Accelerators,
    ClusterName,
    CpusMilli,
    DiskSize,
    Duration,
    Feature,
    Flag,
    Integer,
    JobRef,
    LabelKey,
    LabelValue,
    Line,
    MemorySize,
    MicroUsd,
    Mode,
    Name,
    Path,
    PlaceName,
    RegionName,
    Sha256,
    Size,
    Uri,
    at_most,
    refuse,
)
from federation.units import GIB

MAX_REPLICAS = 10_000
MAX_BLOB_BYTES = 1 << 50

Isolation = Literal["shared-uid", "per-user", "sandboxed", "hard"]
ISOLATION_GRADES: tuple[str, ...] = get_args(Isolation)
"""From the weakest to the strongest."""
Outcome = Literal["failed", "lost", "preempted", "timed_out", "out_of_memory"]
Item = TypeVar("Item")


class Part(BaseModel):
    """A frozen mapping of known keys."""

    model_config = ConfigDict(
        defer_build=True,
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    def __deepcopy__(self, memo: object = None) -> Self:
        """Itself: it never changes. Else each job would get copies of parts left to default."""
        return self


def unique(values: tuple[Item, ...]) -> tuple[Item, ...]:
    """`values`, refused when one of them stands twice."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise refuse(f"{value} stands twice", "leave one of them out")
    return values


def _some(values: tuple[Item, ...]) -> tuple[Item, ...]:
    if not values:
        raise refuse("an empty list allows nowhere", "leave the key out to allow everywhere")
    return unique(values)


class BlobRef(Part):
    """An uploaded archive (tar, gzip) of a directory."""

    archive: Sha256
    size_bytes: Annotated[Integer, Field(ge=0, le=MAX_BLOB_BYTES)] = Field(alias="bytes")


class FileRef(Part):
    """An uploaded file and where the job finds it, relative to its working directory."""

    path: Path
    sha256: Sha256
    size_bytes: Annotated[Integer, Field(ge=0, le=MAX_BLOB_BYTES)] = Field(alias="bytes")
    mode: Mode = Field(default=0o644, json_schema_extra={"default": "0644"})


Extra = Annotated[Integer, Field(ge=1, le=1_000_000)]


class Resources(Part):
    """What one replica needs (all but `replicas` are per replica)."""

    replicas: Annotated[Integer, Field(ge=1, le=MAX_REPLICAS)] = 1
    cpus_milli: CpusMilli = Field(alias="cpus", default=1_000, json_schema_extra={"default": 1})
    memory_bytes: MemorySize = Field(
        alias="memory", default=GIB, json_schema_extra={"default": "1GiB"}
    )
    disk_bytes: DiskSize | None = Field(alias="disk", default=None)
    accelerators: Accelerators = ()
    accelerator_memory_bytes: MemorySize | None = Field(alias="accelerator_memory", default=None)
    topology: Literal["node", "rack", "cluster"] | None = None
    topology_micro_usd: dict[Literal["node", "rack", "cluster"], MicroUsd] = Field(
        alias="topology_usd", default={}
    )
    several_pools: Flag = False
    isolation: Isolation | None = None
    network: bool = False
    extras: Annotated[dict[LabelKey, Extra], Field(max_length=16), at_most(16)] = {}
    features: Annotated[
        tuple[Feature, ...], Field(max_length=16), AfterValidator(unique), at_most(16)
    ] = ()

    @property
    def accelerator_count(self) -> int:
        """Accelerators per replica (0 for a CPU job)."""
        return self.accelerators[0].count if self.accelerators else 0

    @property
    def accelerator_models(self) -> tuple[str, ...]:
        """Canonical names that will do; those with too little memory are left out."""
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
    floor_bytes = resources.accelerator_memory_bytes
    return tuple(
        request
        for request in resources.accelerators
        if floor_bytes is None or at_least(ACCELERATORS[request.name], floor_bytes)
    )


class Checkpoint(Part):
    """Where the job keeps its checkpoints, and how often it writes one."""

    path: Line
    interval_s: Duration | None = Field(alias="interval", default=None)


class Input(Part):
    """Data the job reads: a known dataset; or a URI with its `size` and the `regions` that have
    all of it."""

    dataset: Line | None = None
    uri: Uri | None = None
    size_bytes: Size | None = Field(alias="size", default=None)
    regions: Annotated[
        tuple[RegionName, ...], Field(max_length=64), AfterValidator(unique), at_most(64)
    ] = ()

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.dataset is None) == (self.uri is None):
            raise refuse("needs exactly one of dataset and uri", "write {dataset: name}")
        return self


class Output(Part):
    """A path of the job's directory brought back at its end, or sent `to` a URI."""

    path: Path
    to: Uri | None = None


class RoundTrip(Part):
    """At most `ms` milliseconds to the region `to`."""

    to: RegionName
    ms: Annotated[float, Field(gt=0, le=10_000, strict=True)]


class Placement(Part):
    """Where the job may run and what that may cost. `avoid` names clusters or regions."""

    policy: Name | None = None
    regions: Annotated[
        tuple[RegionName, ...], Field(max_length=256), AfterValidator(_some), at_most(256)
    ] = ()
    clusters: Annotated[
        tuple[ClusterName, ...], Field(max_length=256), AfterValidator(_some), at_most(256)
    ] = ()
    avoid: Annotated[
        tuple[PlaceName, ...], Field(max_length=256), AfterValidator(unique), at_most(256)
    ] = ()
    user_region: RegionName | None = None
    max_rtt: RoundTrip | None = None
    max_price_micro_usd_per_accelerator_hour: MicroUsd | None = Field(
        alias="max_price_usd_per_accelerator_hour", default=None
    )
    budget_micro_usd: MicroUsd | None = Field(alias="budget_usd", default=None)
    spot: Flag | None = None
    max_start_delay_s: Duration | None = Field(alias="max_start_delay", default=None)
    spread: Literal["node", "cluster", "region"] | None = None
    anti_affinity: Annotated[dict[LabelKey, LabelValue], Field(max_length=16), at_most(16)] = {}


class OnDisconnect(Part):
    """What happens when the site of a running job falls silent; the default waits."""

    replace: Flag = False
    lost_after_s: Duration = Field(
        alias="lost_after", default=600, json_schema_extra={"default": "10m"}
    )
    reconcile: Literal["keep_original", "keep_replacement", "longest_running"] = "keep_original"


class Retry(Part):
    """How many attempts in all, and after which outcomes another one is made."""

    attempts: Annotated[Integer, Field(ge=1, le=100)] = 1
    on: Annotated[tuple[Outcome, ...], Field(max_length=5), AfterValidator(unique), at_most(5)] = (
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


class Dependency(Part):
    """A job this one waits for, and what must have become of it."""

    job: JobRef
    when: Literal["succeeded", "ended", "started"] = "succeeded"
