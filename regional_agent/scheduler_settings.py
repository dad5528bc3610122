"""The sections of `agent.yaml` that say how a site's own scheduler is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from federation.accelerators import identify
from federation.units import parse_duration_s
from regional_agent.act.images import ImageWishes
from regional_agent.gridengine.site import GridEngineSite
from regional_agent.kubernetes.kubeconfig import Access, read_kubeconfig
from regional_agent.kubernetes.site import Carry, Devices, KubernetesSite
from regional_agent.ray.site import DASHBOARD, RaySite
from regional_agent.slurm.site import SlurmSite

CPU = "CPU"
_CLIENT_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "SLURM_CONF", "SGE_ROOT", "SGE_CELL",
               "SGE_QMASTER_PORT", "SGE_EXECD_PORT", "SGE_CLUSTER_NAME")  # fmt: skip
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account:
https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"""


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
    rest: Annotated[str, Field(pattern=r"^(unix:/.+|https?://[^/\s]+)?$")] = ""
    rest_token_file: Annotated[str, Field(pattern=r"^(/.+)?$")] = ""

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
            rest=self.rest,
            rest_token_file=self.rest_token_file,
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
    queues: tuple[str, ...] = ()
    project: str = ""
    cards: str = "gpu"
    model: str = ""
    types: Mapping[str, Annotated[str, BeforeValidator(accelerator_name)]] = {}
    accelerator: Annotated[str, BeforeValidator(accelerator_name)] = ""
    memory: str = ""
    parallel_environments: tuple[str, ...] = ()
    max_runtime_s: Annotated[int, BeforeValidator(parse_duration_s), Field(alias="max_runtime")] = 0
    poll_s: Annotated[
        int, BeforeValidator(parse_duration_s), Field(alias="poll", ge=1, le=600)
    ] = 30

    def site(self, environ: Mapping[str, str]) -> GridEngineSite:
        """As adapter and collector take it."""
        env = {name: environ[name] for name in _CLIENT_ENV if name in environ}
        told = {"SGE_ROOT": self.root, "SGE_CELL": self.cell}
        env |= {name: value for name, value in told.items() if value}
        return GridEngineSite(
            client_env=env,
            queues=self.queues,
            project=self.project,
            cards=self.cards,
            model=self.model,
            types=self.types,
            accelerator=self.accelerator,
            memory=self.memory,
            environments=self.parallel_environments,
            max_runtime_s=self.max_runtime_s,
            owner=env.get("USER", ""),
        )


class ContainerSettings(Part):
    """How jobs that name an image run on this host."""

    enabled: bool = True
    podman: Annotated[tuple[str, ...], Field(min_length=1)] = ("podman",)
    pull: bool = True
    archives: tuple[Annotated[str, Field(pattern=r"^/.")], ...] = ()

    def wishes(self) -> ImageWishes | None:
        """As the store of images takes it; None: no images here."""
        return ImageWishes(self.podman, self.pull, self.archives) if self.enabled else None


class CarrySettings(Part):
    """How files come to pods and back where they share no volume with the agent."""

    image: Annotated[str, Field(min_length=1)]
    url: Annotated[str, Field(pattern=r"^https://[^/\s]+:\d+$")] = (
        "https://tradewind-agent:7443"
    )
    listen: Annotated[str, Field(pattern=r"^\S*:\d+$")] = "0.0.0.0:7443"


class DeviceSettings(Part):
    """How cards are had where they are offered by dynamic resource allocation."""

    device_class: Annotated[str, Field(alias="class", min_length=1)]
    driver: str = ""
    product: Annotated[str, Field(pattern=r"^(\S+/)?[A-Za-z_]\w*$")] = "productName"


class KubernetesSettings(Part):
    """How this site's Kubernetes is used."""

    image: str = ""
    volume_claim: str = ""
    host_path: str = ""
    carry: CarrySettings | None = None
    devices: DeviceSettings | None = None
    mount: str = ""
    namespace: str = ""
    kubeconfig: str = ""
    context: str = ""
    url: Annotated[str, Field(pattern=r"^(https?://[^/\s]+)?$")] = ""
    token_file: str = ""
    ca_file: str = ""
    queue: str = ""
    node_selector: Mapping[str, str] = {}
    types: Mapping[str, Annotated[str, BeforeValidator(accelerator_name)]] = {}
    poll_s: Annotated[
        int, BeforeValidator(parse_duration_s), Field(alias="poll", ge=1, le=600)
    ] = 10

    def site(self, environ: Mapping[str, str], state_dir: Path) -> KubernetesSite:
        """As adapter and collector take it; what is not set is that of the pod this process
        runs in. Raises ValueError."""
        if not self.image:
            raise ValueError("kubernetes.image: say the image jobs run in")
        if sum(map(bool, (self.volume_claim, self.host_path, self.carry))) != 1:
            raise ValueError(
                "kubernetes: say either volume_claim or host_path, on which "
                f"{state_dir} lies for every node, or carry, where nodes share no volume"
            )
        mount = Path(self.mount or self.host_path or state_dir)
        if not state_dir.absolute().is_relative_to(mount):
            raise ValueError(f"kubernetes.mount: {state_dir} does not lie below {mount}")
        access = self._access(environ, state_dir)
        return KubernetesSite(
            url=access.url,
            namespace=self.namespace or access.namespace or _own_namespace(),
            image=self.image,
            mount=mount,
            volume_claim=self.volume_claim,
            host_path=self.host_path,
            carry=Carry(**self.carry.model_dump()) if self.carry else None,
            devices=self._devices(),
            token_file=self.token_file or access.token_file,
            ca_file=self.ca_file or access.ca_file,
            cert_file=access.cert_file,
            key_file=access.key_file,
            queue=self.queue,
            node_selector=self.node_selector,
            types=self.types,
        )


    def _devices(self) -> Devices | None:
        said = self.devices
        if said is None:
            return None
        return Devices(said.device_class, said.driver or said.device_class, said.product)

    def _access(self, environ: Mapping[str, str], state_dir: Path) -> Access:
        """By the kubeconfig, by a URL, or as the pod we run in."""
        if self.kubeconfig and self.url:
            raise ValueError("kubernetes: say kubeconfig or url, not both")
        if self.context and not self.kubeconfig:
            raise ValueError("kubernetes.context: goes with kubeconfig")
        if self.kubeconfig:
            path = Path(self.kubeconfig).expanduser()
            return read_kubeconfig(path, self.context, state_dir / "kubernetes")
        if self.url:
            return Access(self.url)
        files = {"token_file": "token", "ca_file": "ca.crt"}
        own = {field: str(SERVICE_ACCOUNT / name) for field, name in files.items()}
        return Access(_service(environ), **own)


def _service(environ: Mapping[str, str]) -> str:
    host, port = (environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        raise ValueError("kubernetes.url: needed where the agent is not a pod of the cluster")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _own_namespace() -> str:
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        raise ValueError(
            "kubernetes.namespace: needed where the agent is not a pod of the cluster"
        ) from None
