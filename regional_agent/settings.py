"""Settings of an agent: `agent.yaml` in its state directory, read once and strictly.

See docs/agent.md. Whatever the file does not say is found out or has a default; an unknown key
is an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)

from federation.log_lines import LogFormat
from federation.units import parse_bytes, parse_duration_s
from regional_agent.act.images import ImageWishes
from regional_agent.act.isolation import Wanted
from regional_agent.gridengine.site import GridEngineSite
from regional_agent.kubernetes.site import KubernetesSite
from regional_agent.price_settings import PriceHours, PriceSettings
from regional_agent.proxying import Proxies, proxies
from regional_agent.ray.site import RaySite
from regional_agent.scheduler_settings import (
    CPU,
    ContainerSettings,
    GridEngineSettings,
    KubernetesSettings,
    Part,
    RaySettings,
    SlurmSettings,
    accelerator_name,
)
from regional_agent.sense.data_rates import Source, parse_source
from regional_agent.sense.latency import Target, parse_target
from regional_agent.sense.prices import DeclaredPrice
from regional_agent.session.ledger import Pool
from regional_agent.slurm.site import SlurmSite

FILE = "agent.yaml"


class SettingsError(ValueError):
    """Settings that cannot be used; the text is one line per fault, naming the key."""


def _cpus(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError("cpus is a number above 0")
    return round(value * 1000)


def _loopback(value: str) -> str:
    """An address only this machine reaches: what is served there asks for no password."""
    host, _, port = value.rpartition(":")
    if value and (host.strip("[]") not in ("127.0.0.1", "::1", "localhost") or not port.isdigit()):
        raise ValueError("host:port on loopback, such as 127.0.0.1:9465")
    return value


def _absolute(value: str) -> str:
    if not os.path.isabs(value) or os.path.normpath(value) in ("/", "//"):
        raise ValueError(f"{value!r} is no absolute path below /, such as /scratch")
    return os.path.normpath(value)


AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class PoolSettings(Part):
    """A pool of the inventory; amounts are per node."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
    accelerator: Annotated[str, BeforeValidator(accelerator_name)] = CPU
    nodes: Annotated[int, Field(ge=1, le=100_000)] = 1
    accelerators_per_node: Annotated[int, Field(ge=1, le=1_024)] = 1
    cpus_milli: Annotated[int, BeforeValidator(_cpus), Field(alias="cpus")]
    memory_bytes: Annotated[int, BeforeValidator(parse_bytes), Field(alias="memory")]
    simulated: bool = False
    domain: str = ""
    racks: Annotated[
        dict[Annotated[str, Field(min_length=1)], Annotated[int, Field(ge=1, le=100_000)]],
        Field(max_length=4_096),
    ] = {}
    extras: Annotated[
        dict[
            Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?$")],
            Annotated[int, Field(ge=1, le=1_000_000)],
        ],
        Field(max_length=64),
    ] = {}

    @model_validator(mode="after")
    def _check_racks(self) -> PoolSettings:
        if self.racks and self.domain:
            raise ValueError(f"{self.name}: give either domain or racks")
        if self.racks and sum(self.racks.values()) != self.nodes:
            stated = sum(self.racks.values())
            raise ValueError(f"{self.name}: racks have {stated} nodes, the pool {self.nodes}")
        return self

    def pool(self) -> Pool:
        """As the ledger takes it; racks take the nodes in their order."""
        return Pool(
            name=self.name,
            accelerator=self.accelerator,
            nodes=self.nodes,
            accelerators_per_node=self.accelerators_per_node,
            cpus_milli=self.cpus_milli,
            memory_bytes=self.memory_bytes,
            simulated=self.simulated,
            domain=self.domain,
            extras=tuple(sorted(self.extras.items())),
            racks=tuple(rack for rack, nodes in self.racks.items() for _ in range(nodes)),
        )


class TargetSettings(Part):
    """What stands for a region when round trips are measured."""

    region: str
    address: str


class SourceSettings(Part):
    """A file that lies with a region's data, by which the way from there is measured."""

    region: str
    url: str


class _File(Part):
    broker: str = ""
    scheduler: Literal["process", "slurm", "ray", "gridengine", "kubernetes"] = "process"
    slurm: SlurmSettings | None = None
    ray: RaySettings | None = None
    gridengine: GridEngineSettings | None = None
    kubernetes: KubernetesSettings | None = None
    proxy: str | None = None
    inventory: tuple[PoolSettings, ...] = ()
    prices: tuple[PriceSettings, ...] = ()
    latency_targets: tuple[TargetSettings, ...] = ()
    data_sources: tuple[SourceSettings, ...] = ()
    latency_responder: str = ""
    latency_every_s: Annotated[
        int, BeforeValidator(parse_duration_s), Field(alias="latency_every")
    ] = 60
    report_sink: Literal["session", "etcd"] = "session"
    etcd_endpoints: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    site_rules: str = ""
    isolation: Literal["auto", "shared-uid", "sandboxed"] = "auto"
    network: Literal["on-request", "always"] = "on-request"
    writable: tuple[AbsolutePath, ...] = ()
    readable: tuple[AbsolutePath, ...] = ()
    hidden: tuple[AbsolutePath, ...] = ()
    containers: ContainerSettings = ContainerSettings()
    env: Mapping[str, str] = {}
    log_format: LogFormat | None = None
    metrics_listen: Annotated[str, AfterValidator(_loopback)] = ""
    cache_bytes: Annotated[
        int, BeforeValidator(parse_bytes), Field(alias="cache")
    ] = 10 * 2**30


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Everything an agent is told. `broker` empty: the API that enrolment named.

    `site_rules` is where the centre's rules lie, None: in the state directory, if at all.
    `latency_responder` is host:port to be measured at, empty for none; `pools` empty: what the
    host has, or with another scheduler what that has, looked at every `poll_s`.
    `stop_jobs`: end jobs and keeper together with the agent. `metrics_listen` is host:port on
    loopback, empty for none; `log_format` None: text on a terminal, else JSON;
    `otel` the standard OTEL_* variables, which alone decide of traces.
    """

    state_dir: Path
    broker: str = ""
    proxies: Proxies = Proxies()
    pools: tuple[Pool, ...] = ()
    prices: tuple[DeclaredPrice, ...] = ()
    latency_targets: tuple[Target, ...] = ()
    data_sources: tuple[Source, ...] = ()
    latency_responder: str = ""
    latency_every_s: int = 60
    report_sink: str = "session"
    etcd_endpoints: tuple[str, ...] = ()
    slurm: SlurmSite | None = None
    ray: RaySite | None = None
    gridengine: GridEngineSite | None = None
    kubernetes: KubernetesSite | None = None
    poll_s: float = 30.0
    tenants: frozenset[str] = frozenset()
    site_rules: Path | None = None
    isolation: Wanted = field(default_factory=Wanted)
    images: ImageWishes | None = None
    env: tuple[tuple[str, str], ...] = ()
    cache_bytes: int = 10 * 2**30
    keeper_arguments: tuple[str, ...] = ()
    stop_jobs: bool = False
    log_format: LogFormat | None = None
    metrics_listen: str = ""
    otel: tuple[tuple[str, str], ...] = ()

    @property
    def batch(self) -> str:
        """The batch system of the site; empty where a keeper runs the jobs."""
        named = {"slurm": self.slurm, "gridengine": self.gridengine, "kubernetes": self.kubernetes,
                 "ray": self.ray}  # fmt: skip
        return next((kind for kind, site in named.items() if site is not None), "")


def load_settings(state_dir: Path, file: Path | None = None) -> AgentSettings:
    """Read `file`, by default `agent.yaml` of the state directory if there is one.

    Raises SettingsError.
    """
    path = file or state_dir / FILE
    try:
        body: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if file is not None:
            raise SettingsError(f"{path}: no such file") from None
        body = None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise SettingsError(f"{path}: {' '.join(str(problem).split())}") from problem
    if body is None:
        body = {}
    if not isinstance(body, dict):
        raise SettingsError(f"{path}: not a mapping of keys")
    try:
        return _settings(state_dir, _File.model_validate(body))
    except ValidationError as problem:
        raise SettingsError(
            "\n".join(f"{path}: {line}" for line in faults(problem, _MODELS))
        ) from problem
    except ValueError as problem:
        raise SettingsError(f"{path}: {problem}") from problem


def _fit_scheduler(said: _File) -> None:
    """Raises SettingsError where sections and scheduler do not go together."""
    if said.scheduler != "process" and said.inventory:
        raise SettingsError(
            f"inventory: with scheduler {said.scheduler} the site itself tells what it has"
        )
    for kind in ("slurm", "ray", "gridengine", "kubernetes"):
        if getattr(said, kind) is not None and said.scheduler != kind:
            raise SettingsError(f"{kind}: goes with scheduler: {kind}")


def _settings(state_dir: Path, said: _File) -> AgentSettings:
    names = [pool.name for pool in said.inventory]
    if len(set(names)) < len(names):
        raise SettingsError("inventory names a pool twice")
    if said.report_sink == "etcd" and not said.etcd_endpoints:
        raise SettingsError("report_sink etcd needs etcd_endpoints")
    slurm, ray = said.slurm or SlurmSettings(), said.ray or RaySettings()
    engine = said.gridengine or GridEngineSettings()
    kubernetes = said.kubernetes or KubernetesSettings()
    _fit_scheduler(said)
    polls = {"slurm": slurm.poll_s, "ray": ray.poll_s, "gridengine": engine.poll_s,
             "kubernetes": kubernetes.poll_s}  # fmt: skip
    return AgentSettings(
        state_dir=state_dir,
        slurm=slurm.site(os.environ) if said.scheduler == "slurm" else None,
        ray=ray.site() if said.scheduler == "ray" else None,
        gridengine=engine.site(os.environ) if said.scheduler == "gridengine" else None,
        kubernetes=(
            kubernetes.site(os.environ, state_dir) if said.scheduler == "kubernetes" else None
        ),
        poll_s=polls.get(said.scheduler, slurm.poll_s),
        broker=said.broker,
        proxies=proxies(said.proxy, os.environ),
        pools=tuple(pool.pool() for pool in said.inventory),
        prices=tuple(price.declared() for price in said.prices),
        latency_targets=tuple(parse_target(t.region, t.address) for t in said.latency_targets),
        data_sources=tuple(parse_source(s.region, s.url) for s in said.data_sources),
        latency_responder=said.latency_responder,
        latency_every_s=said.latency_every_s,
        report_sink=said.report_sink,
        etcd_endpoints=said.etcd_endpoints,
        tenants=frozenset(said.tenants),
        site_rules=state_dir / said.site_rules if said.site_rules else None,
        isolation=Wanted(
            said.isolation,
            said.network == "always",
            said.writable,
            said.readable,
            said.hidden,
        ),
        images=said.containers.wishes(),
        env=tuple(said.env.items()),
        cache_bytes=said.cache_bytes,
        log_format=said.log_format,
        metrics_listen=said.metrics_listen,
        otel=tuple((k, v) for k, v in os.environ.items() if k.startswith("OTEL_")),
    )


def job_path() -> str:
    """The PATH jobs find: that of this process."""
    return os.environ.get("PATH", os.defpath)


def faults(problem: ValidationError, models: Iterable[type[BaseModel]]) -> Iterable[str]:
    """A line per fault: where, what, and the nearest known key of `models`."""
    known = [field.alias or name for m in models for name, field in m.model_fields.items()]
    for error in problem.errors():
        where = ".".join(map(str, error["loc"]))
        if error["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(error["loc"][-1]), known, n=1)
            yield f"{where}: unknown key" + (f"; did you mean {near[0]}?" if near else "")
        else:
            yield f"{where}: {error['msg']}"


_MODELS = (_File, SlurmSettings, RaySettings, GridEngineSettings, KubernetesSettings,
           ContainerSettings, PoolSettings, PriceSettings, PriceHours, TargetSettings)  # fmt: skip
