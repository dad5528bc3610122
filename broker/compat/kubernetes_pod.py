"""A pod template of Kubernetes: what its one container runs, and what it needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from broker.compat import kubernetes_keys as keys
from broker.compat import kubernetes_values as values
from broker.compat.accelerator_names import ANY_NVIDIA, UnknownModel, models, request
from broker.compat.imported import Draft
from broker.compat.notes import Findings, short
from broker.compat.yaml_items import Item
from federation.units import exact_bytes

Value = TypeVar("Value")
_ENV = re.compile(r"(?!TRADEWIND_)[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_REGION = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
_REFERENCE = re.compile(r"(\$+)\(([A-Za-z_][A-Za-z0-9_]*)\)")


@dataclass(slots=True)
class Pod:
    """A pod template as the job has it. `needs` compares whether two templates ask for the same."""

    command: list[str] = field(default_factory=list)
    image: str = ""
    env: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    resources: dict[str, Any] = field(default_factory=dict)
    regions: list[str] = field(default_factory=list)
    grace_s: int = 0
    lines: dict[str, int] = field(default_factory=dict)

    @property
    def needs(self) -> tuple[object, ...]:
        """What two members of one job must have alike."""
        return self.command, self.image, self.env, self.secrets, self.resources, self.regions

    def put_into(self, draft: Draft) -> None:
        """Write it into the job."""
        draft.put("command", self.command, self.lines.get("command", 0))
        draft.put("image", self.image, self.lines.get("image", 0))
        for key in ("env", "secrets"):
            if getattr(self, key):
                draft.put(key, getattr(self, key), self.lines.get(key, 0))
        for key, value in self.resources.items():
            draft.put(f"resources.{key}", value, self.lines.get(key, 0))
        if self.regions:
            draft.put("placement.regions", self.regions, self.lines.get("regions", 0))
        if self.grace_s:
            draft.put("preempt_grace", f"{self.grace_s}s", self.lines.get("grace", 0))


class PodReader:
    """Reads one pod spec; what it finds is told by line."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._pod = Pod()
        self._cards: dict[str, tuple[int, int]] = {}
        self._models: list[str] = []
        self._mounted: set[str] = set()

    def read(self, spec: Item) -> Pod | None:
        """The pod of a pod spec; None when there is no right one (told)."""
        container = self._one_container(spec)
        if container is None:
            return None
        for key, item in spec.items():
            if key in keys.POD_IGNORED:
                self._findings.ignored(item.line, key, keys.POD_IGNORED[key])
            elif key in keys.POD_WARNED:
                self._findings.warning(item.line, key, keys.POD_WARNED[key])
            elif key not in keys.POD_READ:
                self._findings.warning(item.line, key, "unknown key: left out")
        self._node_selector(spec.get("nodeSelector"))
        if grace := spec.get("terminationGracePeriodSeconds"):
            self._pod.grace_s = (
                self._value(grace, "terminationGracePeriodSeconds", values.whole) or 0
            )
            self._pod.lines["grace"] = grace.line
        self._container(container)
        self._volumes(spec.get("volumes"))
        self._accelerators()
        return self._pod

    def _one_container(self, spec: Item) -> Item | None:
        for key in ("initContainers", "ephemeralContainers"):
            if (item := spec.get(key)) and item.entries():
                self._findings.error(
                    item.line, key, "one container runs, with nothing before it"
                )
                return None
        item = spec.get("containers")
        containers = item.entries() if item else []
        if len(containers) != 1:
            line = item.line if item else spec.line
            self._findings.error(
                line, "containers", f"{len(containers)} of them: a job has one"
            )
            return None
        return containers[0]

    def _value(self, item: Item, what: str, parse: Callable[[Item], Value]) -> Value | None:
        try:
            return parse(item)
        except values.BadValue as error:
            self._findings.error(item.line, f"{what}: {short(str(item.plain), 60)}", str(error))
            return None

    # The container ------------------------------------------------------------------------------

    def _container(self, container: Item) -> None:
        self._image(container)
        self._environment(container)
        self._command(container)
        if (mounts := container.get("volumeMounts")) is not None:
            for mount in mounts.entries():
                name = mount.get("name")
                self._mounted.add(str(name.scalar) if name else "")
        if (resources := container.get("resources")) is not None:
            self._resources(resources)
        for key, item in container.items():
            if key in keys.CONTAINER_IGNORED:
                if keys.CONTAINER_IGNORED[key]:
                    self._findings.ignored(item.line, key, keys.CONTAINER_IGNORED[key])
            elif key in keys.CONTAINER_WARNED:
                self._findings.warning(item.line, key, keys.CONTAINER_WARNED[key])
            elif key == "envFrom":
                self._findings.error(
                    item.line,
                    key,
                    "variables of a cluster's objects are not known here: write env",
                )
            elif key not in keys.CONTAINER_READ:
                self._findings.warning(item.line, key, "unknown key: left out")

    def _image(self, container: Item) -> None:
        image = container.get("image")
        text = image.scalar if image else None
        if not image or not text:
            self._findings.error(container.line, "image", "missing")
            return
        self._pod.image = text if "://" in text else f"docker://{text}"
        self._pod.lines["image"] = image.line
        self._findings.translated(image.line, f"image: {text}", f"image: {self._pod.image}")

    def _command(self, container: Item) -> None:
        command, args = container.get("command"), container.get("args")
        if command is None:
            line = args.line if args else container.line
            self._findings.error(
                line,
                "command",
                "missing: the entry point of an image is not known here, so write command",
            )
            return
        words = [*command.entries(), *(args.entries() if args else [])]
        texts = [word.scalar if word.scalar is not None else "" for word in words]
        if not texts:
            self._findings.error(command.line, "command", "not a list of words")
            return
        self._pod.command = [self._referenced(text, command.line) for text in texts]
        self._pod.lines["command"] = command.line
        self._findings.understood(command.line, "command", f"command of {len(texts)} words")
        if (workdir := container.get("workingDir")) is not None and workdir.scalar:
            script = 'cd "$0" || exit 125; exec "$@"'
            self._pod.command = ["/bin/sh", "-c", script, workdir.scalar, *self._pod.command]
            self._findings.translated(
                workdir.line, f"workingDir: {workdir.scalar}", "the command goes there first"
            )

    def _referenced(self, text: str, line: int) -> str:
        """$(NAME) replaced by the value written in env, as Kubernetes does it."""

        def value(match: re.Match[str]) -> str:
            dollars, name = match[1], match[2]
            if len(dollars) % 2 == 0:
                return "$" * (len(dollars) // 2) + f"({name})"
            kept = "$" * (len(dollars) // 2)
            if name in self._pod.env:
                return kept + self._pod.env[name]
            self._findings.warning(
                line, f"$({name})", "no value of it stands in env: left as it is"
            )
            return match[0]

        return _REFERENCE.sub(value, text)

    def _environment(self, container: Item) -> None:
        item = container.get("env")
        for entry in item.entries() if item else []:
            name = entry.get("name")
            text = (name.scalar if name else None) or ""
            if not _ENV.fullmatch(text):
                self._findings.error(
                    entry.line, f"env: {short(text, 40)}", "not usable as a name"
                )
                continue
            source = entry.get("valueFrom")
            value = entry.get("value")
            if source is None:
                self._pod.env[text] = self._referenced(
                    (value.scalar if value else "") or "", entry.line
                )
                self._findings.understood(entry.line, f"env: {text}", f"env.{text}")
            elif source.get("secretKeyRef") is not None:
                self._pod.secrets.append(text)
                self._findings.translated(
                    entry.line,
                    f"env: {text}",
                    f"secrets: {text}; its value is sealed when it is submitted",
                )
            else:
                self._findings.error(
                    entry.line,
                    f"env: {text}",
                    "its value comes from a cluster's objects: write it out",
                )
        if item:
            self._pod.lines["env"] = self._pod.lines["secrets"] = item.line

    # Resources ----------------------------------------------------------------------------------

    def _resources(self, resources: Item) -> None:
        asked: dict[str, Item] = {}
        # A pod gets the cpus it requests, and may use memory and disk up to its limits.
        limits, requests = resources.get("limits"), resources.get("requests")
        for part in (requests, limits):
            asked.update(part.items() if part else ())
        if requests and (cpu := requests.get("cpu")) is not None:
            asked["cpu"] = cpu
        for key, item in resources.items():
            if key == "claims":
                self._findings.error(
                    item.line,
                    key,
                    "resource claims of a cluster are not read:"
                    " write the count of a device plugin",
                )
            elif key not in ("limits", "requests"):
                self._findings.warning(item.line, key, "unknown key: left out")
        for name, item in asked.items():
            self._one_resource(name, item)

    def _one_resource(self, name: str, item: Item) -> None:
        written = f"{name}: {item.scalar}"
        kinds: dict[str, tuple[str, Callable[[Item], Any]]] = {
            "cpu": ("cpus", values.cpus_of),
            "memory": ("memory", _memory),
            "ephemeral-storage": ("disk", _memory),
        }
        if name in kinds:
            key, parse = kinds[name]
            value = self._value(item, name, parse)
            if value is not None:
                self._pod.resources[key] = value
                self._pod.lines[key] = item.line
                self._findings.understood(item.line, written, f"resources.{key}: {value}")
        elif name in values.CARDS:
            number = self._value(item, name, values.whole)
            if number:
                self._cards[name] = (number, item.line)
        elif name.startswith(("nvidia.com/mig-", "nvidia.com/gpu.shared")):
            self._findings.error(item.line, written, "parts of a GPU cannot be asked for")
        else:
            self._findings.warning(
                item.line, written, "a resource of one cluster: not carried over"
            )

    def _node_selector(self, selector: Item | None) -> None:
        for key, item in selector.items() if selector else []:
            text = item.scalar or ""
            written = f"{key}: {text}"
            if key in values.MODEL_LABELS:
                self._models.append(text)
                self._findings.translated(item.line, written, "the model of accelerator")
            elif key in values.REGION_LABELS and _REGION.fullmatch(text):
                self._pod.regions = [text]
                self._pod.lines["regions"] = item.line
                self._findings.translated(item.line, written, f"placement.regions: {text}")
            elif values.EVERYWHERE.get(key) == text:
                self._findings.understood(item.line, written, "true of every site")
            else:
                self._findings.warning(
                    item.line, written, "a label of one cluster's nodes: not carried over"
                )

    def _accelerators(self) -> None:
        if not self._cards:
            return
        if len(self._cards) > 1:
            _, line = list(self._cards.values())[-1]
            self._findings.error(line, "resources", "two kinds of accelerator at once")
            return
        ((resource, (number, line)),) = self._cards.items()
        try:
            names = (
                models(self._models) if self._models else values.CARDS[resource] or ANY_NVIDIA
            )
        except UnknownModel as error:
            self._findings.error(line, resource, str(error))
            return
        wanted = request(names, number)
        self._pod.resources["accelerators"] = wanted
        self._pod.lines["accelerators"] = line
        if self._models:
            self._findings.understood(line, f"{resource}: {number}", f"accelerators: {wanted}")
        else:
            self._findings.warning(
                line,
                f"{resource}: {number}",
                f"no model is named: any of {len(names)} will do, and cost decides which; name"
                " one by nodeSelector nvidia.com/gpu.product",
            )

    def _volumes(self, volumes: Item | None) -> None:
        for volume in volumes.entries() if volumes else []:
            name = volume.get("name")
            text = (name.scalar if name else None) or ""
            kinds = [key for key, _ in volume.items() if key != "name"]
            kind = kinds[0] if kinds else "nothing"
            if kind == "emptyDir" and text in self._mounted:
                self._findings.warning(
                    volume.line,
                    f"volume {text}",
                    "an empty directory is not mounted: the command makes it where it needs it",
                )
            elif text in self._mounted:
                self._findings.error(
                    volume.line,
                    f"volume {text}",
                    f"{kind} lies in one cluster: send data as files, or have the job fetch it",
                )
            else:
                self._findings.ignored(volume.line, f"volume {text}", "no container mounts it")


def _memory(item: Item) -> str:
    return exact_bytes(values.bytes_of(item))
