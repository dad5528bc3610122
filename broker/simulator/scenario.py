"""A scenario as its file says it: fleet, workload, faults, expectations. Read strictly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from federation.accelerators import identify
from federation.units import parse_duration_s
from regional_agent.price_settings import PriceHours

FAULTS = {
    "broker_crash": "a broker process is killed; back after `for`",
    "broker_cut_off": "one broker process does not reach the store; others do",
    "store_down": "the state store is not reached",
    "store_slow": "the way to the store takes `factor` times as long",
    "store_ambiguous": "a share of commits (`share`) gives no answer; half of them were applied",
    "partition": "no frame passes between a site and the brokers; none is lost",
    "cut": "the session breaks; the agent dials again",
    "flap": "the session breaks every `every` seconds",
    "agent_crash": "the agent is killed; its jobs run on; back after `for`",
    "power": "the whole site goes dark: agent and running jobs; back after `for`",
    "disk": "the agent loses its journal and comes back with an empty one",
    "slow": "starting a job takes `factor` times as long",
    "refuse": "the local scheduler refuses a share (`share`) of what it is given",
    "deaf": "the local scheduler cannot be asked; what runs runs on",
    "lie": "the site reports everything free whatever runs",
    "mute": "the site's capacity reports do not come, its session stands",
    "unfenced": "the site keeps no contact deadline, though it says that it does",
    "crowd": "the site's own users take all that is free, and leave after a share (`share`) of "
    "the time they asked for",
    "drain": "operators drain the cluster; what runs after `for` is moved",
    "pause": "the site takes nothing new",
}
SETTINGS = {
    "disturbed_share_max",
    "gang_hold_max_s",
    "gang_recovery_s",
    "leader_ttl_s",
    "move_gap_s",
    "move_look_s",
    "move_saving_min_usd",
    "move_saving_share",
    "moves_max",
    "patience_s",
    "preempt",
    "share_half_life_s",
}
POINT = re.compile(r"(commit|committed|send|sent):([1-9]\d{0,6})")
EXPECTATION = re.compile(r"\s*([a-z0-9_.]+)\s*(<=|>=|==|!=|<|>)\s*(-?[0-9.]+)\s*")


class ScenarioError(ValueError):
    """A scenario that cannot be run; one line per fault, naming the key."""


def seconds(value: object) -> float:
    """A number of seconds, or a duration like `90m`. Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value < 1e9:
            raise ValueError("is not a time in seconds")
        return float(value)
    return 0.0 if value in ("0", "0s") else float(parse_duration_s(value))


def _model(value: object) -> str:
    return identify(str(value)).name


Seconds = Annotated[float, BeforeValidator(seconds)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClusterPart(_Part):
    """A cluster; `start` is what its scheduler needs to start a job."""

    name: Name
    region: Name
    start: Seconds = 0.5


class PoolPart(_Part):
    """A pool as in a planning problem; `free_nodes` maps accelerators of a node to nodes. `hours`
    of the week have prices of their own, as in an agent's settings, in UTC."""

    name: Name
    cluster: Name
    accelerator: Annotated[str, BeforeValidator(_model)] = "CPU"
    spot: bool = False
    price_usd_per_accelerator_hour: Annotated[float, Field(ge=0, le=1000)] = 1.0
    accelerators_per_node: Annotated[int, Field(ge=1, le=1024)]
    free_nodes: dict[Annotated[int, Field(ge=1, le=1024)], Annotated[int, Field(ge=1)]]
    cpus_per_node: Annotated[float, Field(gt=0)] | None = None
    memory_gib_per_node: Annotated[float, Field(gt=0)] | None = None
    hours: tuple[PriceHours, ...] = ()


class FleetPart(_Part):
    """Clusters and pools, or the planning problem that has them. `capacity`: accelerators per
    pool (`cluster/pool`), or a percentile of the trace's demand such as `p95`."""

    problem: str = ""
    regions: tuple[Name, ...] = ()
    rtt_ms: tuple[tuple[float, ...], ...] = ()
    clusters: tuple[ClusterPart, ...] = ()
    pools: tuple[PoolPart, ...] = ()
    capacity: Annotated[str, Field(pattern=r"^p\d{1,2}$")] | dict[str, int] = Field(
        default_factory=dict
    )


class JobPart(_Part):
    """`count` jobs submitted together at `at`; each runs `duration` and exits with `exit`.
    `spec` is the rest of a job file. `cancel`, `hold`, `release`: when that is asked for."""

    name: Name
    at: Seconds = 0.0
    count: Annotated[int, Field(ge=1, le=1000)] = 1
    duration: Seconds = 60.0
    exit: Annotated[int, Field(ge=0, le=255)] = 0
    spec: dict[str, Any] = Field(default_factory=dict)
    cancel: Seconds | None = None
    hold: Seconds | None = None
    release: Seconds | None = None


class TenantPart(_Part):
    """A tenant that is not like the usual one; those of jobs need not be listed."""

    name: Name
    weight: Annotated[int, Field(ge=1)] = 1
    quota_accelerators: Annotated[int, Field(ge=0)] | None = None
    cohort: str = ""
    borrow_accelerators: Annotated[int, Field(ge=0)] | None = None


class WorkloadPart(_Part):
    """Jobs by hand, or a CSV of them (docs/simulation.md names its columns)."""

    jobs: tuple[JobPart, ...] = ()
    trace: str = ""
    from_s: Annotated[float, Field(ge=0)] = 0.0
    to_s: Annotated[float, Field(gt=0)] | None = None
    load: Annotated[float, Field(gt=0, le=1000)] = 1.0


class FaultPart(_Part):
    """One fault. `at` is a time, or a point of the first broker's life such as `commit:7`
    (before its 7th commit), `committed:7` (after it), `send:3`, `sent:3`."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    at: float | str
    kind: str
    target: str = ""
    for_s: Annotated[float, BeforeValidator(seconds), Field(alias="for")] = 0.0
    factor: Annotated[float, Field(gt=0)] = 20.0
    share: Share = 0.5
    every: Seconds = 5.0

    @property
    def point(self) -> tuple[str, int] | None:
        """(commit, committed, send or sent; count), or None for a time."""
        found = POINT.fullmatch(self.at) if isinstance(self.at, str) else None
        return (found[1], int(found[2])) if found else None

    @property
    def at_s(self) -> float:
        """When it begins; 0 for a point."""
        return 0.0 if self.point else seconds(self.at)


class Scenario(_Part):
    """See docs/simulation.md. `policies`: one run each; `default` (as submitted), `home`, or the
    name of a routing policy in one of `policy_files`. `expect` is of the first. `settle`: how
    long jobs may still take once nothing is submitted and no fault acts any more. `settings`: the
    broker's own (docs/broker.md), of those that change what is decided."""

    version: Literal[1] = 1
    about: str = ""
    fleet: FleetPart
    workload: WorkloadPart
    tenants: tuple[TenantPart, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)
    policies: Annotated[tuple[str, ...], Field(min_length=1)] = ("default",)
    policy_files: tuple[str, ...] = ()
    faults: tuple[FaultPart, ...] = ()
    seed: int = 1
    brokers: Annotated[int, Field(ge=1, le=5)] = 1
    heartbeat: Seconds = 5.0
    settle: Seconds = 3600.0
    expect: tuple[str, ...] = ()


def read_scenario(path: Path) -> Scenario:
    """The scenario in a file. Raises ScenarioError."""
    try:
        text = path.read_text(encoding="utf-8")
        return scenario_from(yaml.safe_load(text))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise ScenarioError(f"{path}: {' '.join(str(problem).split())}") from problem
    except ScenarioError as problem:
        lines = str(problem).splitlines()
        raise ScenarioError("\n".join(f"{path}: {line}" for line in lines)) from problem


def scenario_from(body: object) -> Scenario:
    """A scenario from parsed YAML. Raises ScenarioError."""
    try:
        found = Scenario.model_validate(body)
    except ValidationError as problem:
        lines = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in problem.errors())
        raise ScenarioError("\n".join(lines)) from problem
    problems = list(_problems(found))
    if problems:
        raise ScenarioError("\n".join(problems))
    return found


def _problems(scenario: Scenario) -> Iterator[str]:
    fleet, names = scenario.fleet, [job.name for job in scenario.workload.jobs]
    if bool(fleet.problem) == bool(fleet.clusters):
        yield "fleet: give either a problem file, or clusters and pools"
    if len(set(names)) < len(names):
        yield "workload.jobs: a name is used twice"
    if not names and not scenario.workload.trace:
        yield "workload: neither jobs nor a trace"
    for name in sorted(set(scenario.settings) - SETTINGS):
        yield f"settings: {name!r} is none of {', '.join(sorted(SETTINGS))}"
    places = {c.name for c in fleet.clusters} | {c.region for c in fleet.clusters}
    for index, fault in enumerate(scenario.faults):
        for problem in _fault_problems(fault, places, scenario.brokers):
            yield f"faults.{index}.{problem}"
    for index, text in enumerate(scenario.expect):
        if not EXPECTATION.fullmatch(text):
            yield f"expect.{index}: {text!r} is not like `succeeded == 12`"


def _fault_problems(fault: FaultPart, places: set[str], brokers: int) -> Iterator[str]:
    if fault.kind not in FAULTS:
        yield f"kind: {fault.kind!r} is none of {', '.join(FAULTS)}"
    if fault.point is None:
        try:
            seconds(fault.at)
        except ValueError as problem:
            yield f"at: {problem}"
    elif fault.kind != "broker_crash":
        yield f"at: {fault.at} is a point for broker_crash alone"
    if fault.kind.startswith("broker"):
        if fault.target not in ("", *(f"broker-{n}" for n in range(1, brokers + 1))):
            yield f"target: no broker {fault.target!r}; there are broker-1 to broker-{brokers}"
    elif not fault.kind.startswith("store") and places and fault.target not in places:
        yield f"target: no cluster or region {fault.target!r}"
