"""The resources of a SkyPilot task: one shape, or several of which any will do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from broker.compat.accelerator_names import UnknownModel, models
from broker.compat.notes import Findings, short
from broker.compat.yaml_items import Item

_REGION = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
_AMOUNT = re.compile(
    r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(GB|GiB|MB|MiB|TB|TiB|g|gb)?\s*(\+|x)?", re.I
)
_UNITS = {"": "GiB", "g": "GiB", "gb": "GiB", "gib": "GiB", "mb": "MiB", "mib": "MiB", "tb": "TiB",
          "tib": "TiB"}  # fmt: skip
_IGNORED = {
    "cloud": "Tradewind places the job in its own sites",
    "autostop": "nothing is left running", "disk_tier": "the site decides on its disks",
    "network_tier": "the site decides on its network",
    "accelerator_args": "settings of one cloud", "labels": "labels of instances of one cloud",
}  # fmt: skip
_WARNED = {
    "zone": "zones of a cloud are not known here",
    "instance_type": "types of one cloud are not known here: cpus, memory and accelerators count",
    "job_recovery": "not carried over: `retry` says after which outcomes",
    "spot_recovery": "not carried over: `retry` says after which outcomes",
    "ports": "nothing is published",
    "local_disk": "the site decides on its disks",
}


@dataclass(slots=True)
class Wanted:
    """Fields of the job and the lines they came from."""

    fields: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Shape:
    """One alternative: (models, count) of accelerators, and all else that is asked for."""

    line: int
    cards: list[tuple[str, ...]] = field(default_factory=list)
    count: int = 0
    rest: dict[str, Any] = field(default_factory=dict)
    region: str = ""
    anywhere: bool = True
    spot: bool | None = None


class _Reader:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.lines: dict[str, int] = {}

    def shape(self, item: Item, base: dict[str, Item]) -> _Shape | None:
        """One alternative; keys of `base` hold where it says nothing. None if told to be wrong."""
        keys = {**base, **dict(item.items())}
        shape = _Shape(item.line)
        for key, value in keys.items():
            if value.value is None or key in ("any_of", "ordered"):
                continue
            if not self._one(shape, key, value):
                return None
        return shape

    def _one(self, shape: _Shape, key: str, item: Item) -> bool:
        if key == "accelerators":
            return self._accelerators(shape, item)
        if key in ("cpus", "memory", "disk_size"):
            return self._amount(shape, key, item)
        if key in ("region", "infra"):
            self._region(shape, key, item)
        elif key == "use_spot":
            shape.spot = item.value is True
            self._findings.understood(item.line, f"use_spot: {item.text}", "placement.spot")
        elif key == "image_id":
            return self._image(shape, item)
        elif key in ("max_hourly_cost", "max_cost"):
            self._findings.warning(item.line, key, "not carried over: use placement.budget_usd")
        elif key in _IGNORED:
            self._findings.ignored(
                item.line, f"{key}: {short(str(item.plain), 40)}", _IGNORED[key]
            )
        elif key in _WARNED:
            self._findings.warning(
                item.line, f"{key}: {short(str(item.plain), 40)}", _WARNED[key]
            )
        else:
            self._findings.warning(item.line, short(key), "unknown key: left out")
        return True

    def _accelerators(self, shape: _Shape, item: Item) -> bool:
        texts: list[tuple[str, int]] = []
        if isinstance(item.value, dict):
            texts = [
                (f"{name}:{count.text or '1'}", count.line) for name, count in item.items()
            ]
        elif isinstance(item.value, list):
            texts = [(entry.text, entry.line) for entry in item.entries()]
        else:
            texts = [(item.text, item.line)]
        counts = set()
        for text, line in texts:
            name, colon, number = text.strip().rpartition(":")
            name, number = (name, number) if colon else (text.strip(), "1")
            if not re.fullmatch(r"[1-9][0-9]{0,3}", number.strip(), re.ASCII):
                self._findings.error(line, short(text), "whole accelerators only: write A100:8")
                return False
            try:
                shape.cards.append(models([name]))
            except UnknownModel as error:
                self._findings.error(line, short(text), str(error))
                return False
            counts.add(int(number))
        if len(counts) != 1:
            self._findings.error(
                item.line,
                "accelerators",
                "alternatives with different counts: a job has one shape",
            )
            return False
        shape.count = counts.pop()
        self.lines.setdefault("resources.accelerators", item.line)
        self._findings.understood(
            item.line, "accelerators", short(", ".join(t for t, _ in texts))
        )
        return True

    def _amount(self, shape: _Shape, key: str, item: Item) -> bool:
        match = _AMOUNT.fullmatch((item.scalar or "").strip())
        if match is None or float(match[1]) == 0:
            self._findings.error(
                item.line, f"{key}: {short(str(item.plain), 40)}", "not an amount"
            )
            return False
        if match[3] == "x":
            self._findings.error(item.line, f"{key}: {item.text}", "multiples are not read")
            return False
        plus = ", at least" if match[3] == "+" else ""
        if key == "cpus":
            number = float(match[1])
            value: Any = int(number) if number.is_integer() else number
            shape.rest["resources.cpus"] = value
        else:
            unit = _UNITS[(match[2] or "").lower()]
            value = f"{match[1]}{unit}"
            shape.rest["resources.memory" if key == "memory" else "resources.disk"] = value
        path = {"cpus": "resources.cpus", "memory": "resources.memory"}.get(
            key, "resources.disk"
        )
        self.lines.setdefault(path, item.line)
        self._findings.understood(item.line, f"{key}: {item.text}", f"{path}: {value}{plus}")
        return True

    def _region(self, shape: _Shape, key: str, item: Item) -> None:
        text = item.scalar or ""
        parts = [part for part in text.split("/") if part not in ("", "*")]
        region = text if key == "region" else (parts[1] if len(parts) > 1 else "")
        if not region:
            self._findings.ignored(item.line, f"{key}: {short(text)}", _IGNORED["cloud"])
        elif _REGION.fullmatch(region):
            shape.region = region
            self.lines.setdefault("placement.regions", item.line)
            self._findings.translated(
                item.line,
                f"{key}: {text}",
                f"placement.regions: {region}, a region of the federation of that name",
            )
        else:
            self._findings.warning(item.line, f"{key}: {short(text)}", "no region's name here")

    def _image(self, shape: _Shape, item: Item) -> bool:
        text = item.scalar or ""
        if not text.startswith("docker:"):
            self._findings.error(
                item.line,
                f"image_id: {short(text)}",
                "an image of machines of one cloud: name a container, docker:IMAGE",
            )
            return False
        shape.rest["image"] = f"docker://{text.removeprefix('docker:')}"
        self.lines.setdefault("image", item.line)
        self._findings.translated(
            item.line, f"image_id: {text}", f"image: {shape.rest['image']}"
        )
        return True


def read_resources(item: Item, findings: Findings) -> Wanted | None:
    """What the job asks for; None when the alternatives have no one shape (told)."""
    reader = _Reader(findings)
    base = {key: value for key, value in item.items() if key not in ("any_of", "ordered")}
    chosen = item.get("any_of") or item.get("ordered")
    if item.get("any_of") and item.get("ordered"):
        findings.error(item.line, "resources", "any_of and ordered at once: give one of them")
        return None
    if item.get("ordered"):
        line = item.get("ordered")
        findings.warning(
            line.line if line else 0,
            "ordered",
            "the order says nothing here: cost decides among the alternatives",
        )
    alternatives = chosen.entries() if chosen else [Item({}, item.line)]
    shapes = [reader.shape(entry, base) for entry in alternatives]
    whole = [shape for shape in shapes if shape is not None]
    if len(whole) < len(shapes) or not whole:
        if not shapes:
            findings.error(item.line, "resources", "no alternative is given")
        return None
    return _joined(whole, reader, findings)


def _joined(shapes: list[_Shape], reader: _Reader, findings: Findings) -> Wanted | None:
    first = shapes[0]
    for other in shapes[1:]:
        if other.rest != first.rest or other.count != first.count:
            findings.error(
                other.line,
                "resources",
                "the alternatives differ in more than model,"
                " region and spot: a job has one shape",
            )
            return None
    pairs = {(tuple(shape.cards), shape.region) for shape in shapes}
    if len({cards for cards, _ in pairs}) > 1 and len({region for _, region in pairs}) > 1:
        findings.warning(
            first.line, "resources", "any of the models will do in any of the regions"
        )
    wanted = Wanted(dict(first.rest), reader.lines)
    names = dict.fromkeys(name for shape in shapes for cards in shape.cards for name in cards)
    if first.count:
        texts = [f"{name}:{first.count}" for name in names]
        wanted.fields["resources.accelerators"] = texts[0] if len(texts) == 1 else texts
    regions = list(dict.fromkeys(shape.region for shape in shapes))
    if all(regions):
        wanted.fields["placement.regions"] = regions
    elif any(regions):
        findings.warning(first.line, "region", "an alternative names none: anywhere will do")
    spots = {shape.spot for shape in shapes}
    if True in spots:
        wanted.fields["placement.spot"] = True
        if len(spots) > 1:
            findings.warning(first.line, "use_spot", "spot will do for every alternative")
    elif False in spots:
        wanted.fields["placement.spot"] = False
    return wanted
