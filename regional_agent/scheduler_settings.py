"""The sections of `agent.yaml` that say how a site's own scheduler is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from federation.accelerators import identify
from federation.units import parse_duration_s
from regional_agent.gridengine.site import GridEngineSite
from regional_agent.ray.site import DASHBOARD, RaySite
from regional_agent.slurm.site import SlurmSite

CPU = "CPU"
_CLIENT_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "SLURM_CONF", "SGE_ROOT", "SGE_CELL",
               "SGE_QMASTER_PORT", "SGE_EXECD_PORT", "SGE_CLUSTER_NAME")  # fmt: skip


class Part(BaseModel):
    """A section of the file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def accelerator_name(value: object) -> str:
    """A canonical name. Raises InvalidAccelerator (a ValueError)."""
    if value == CPU:
        return CPU
    return identify(str(value)).name


class SlurmSettings(Part):
    """How this site's Slurm is used."""

    conf: str = ""
    account: str = ""
    accounts: Mapping[str, str] = {}
    qos: str = ""
    partitions: tuple[str, ...] = ()
    gres: Mapping[str, Annotated[str, BeforeValidator(accelerator_name)]] = {}
    max_runtime_s: Annotated[int, BeforeValidator(parse_duration_s), Field(alias="max_runtime")] = 0
    poll_s: Annotated[
        int, BeforeValidator(parse_duration_s), Field(alias="poll", ge=1, le=600)
    ] = 30

    def site(self, environ: Mapping[str, str]) -> SlurmSite:
        """As adapter and collector take it; clients run with what of our environment they
        need, and nothing else."""
        env = {name: environ[name] for name in _CLIENT_ENV if name in environ}
        if self.conf:
            env["SLURM_CONF"] = self.conf
        return SlurmSite(
            client_env=env,
            account=self.account,
            qos=self.qos,
            accounts=self.accounts,
            partitions=self.partitions,
            gres=self.gres,
            max_runtime_s=self.max_runtime_s,
        )


class RaySettings(Part):
    """How this site's Ray is used."""

    url: Annotated[str, Field(pattern=r"^https?://[^/\s]+$")] = DASHBOARD
    accelerator: Annotated[str, BeforeValidator(accelerator_name)] = ""
    types: Mapping[str, Annotated[str, BeforeValidator(accelerator_name)]] = {}
    poll_s: Annotated[
        int, BeforeValidator(parse_duration_s), Field(alias="poll", ge=1, le=600)
    ] = 10

    def site(self) -> RaySite:
        """As adapter and collector take it."""
        return RaySite(self.url, self.accelerator, self.types)


class GridEngineSettings(Part):
    """How this site's Grid Engine is used."""

    root: str = ""
    cell: str = ""
    queue: str = ""
    project: str = ""
    cards: str = "gpu"
    parallel_environment: str = ""
    max_runtime_s: Annotated[int, BeforeValidator(parse_duration_s), Field(alias="max_runtime")] = 0
    poll_s: Annotated[
        int, BeforeValidator(parse_duration_s), Field(alias="poll", ge=1, le=600)
    ] = 30

    def site(self, environ: Mapping[str, str]) -> GridEngineSite:
        """As the adapter takes it."""
        env = {name: environ[name] for name in _CLIENT_ENV if name in environ}
        told = {"SGE_ROOT": self.root, "SGE_CELL": self.cell}
        env |= {name: value for name, value in told.items() if value}
        return GridEngineSite(
            client_env=env,
            queue=self.queue,
            project=self.project,
            cards=self.cards,
            environment=self.parallel_environment,
            max_runtime_s=self.max_runtime_s,
            owner=env.get("USER", ""),
        )
