"""What kind of file it is, told by its content alone, without reading a job out of it."""

from __future__ import annotations

import re
from enum import StrEnum

from broker.compat.yaml_items import BadYaml, Item, read_yaml

_SBATCH = re.compile(r"^#SBATCH(\s|$)", re.MULTILINE)
_QSUB = re.compile(r"^#\$ *-[A-Za-z@]", re.MULTILINE)


class Kind(StrEnum):
    """What kind of file it is, told by its content."""

    SBATCH = "sbatch"
    QSUB = "qsub"
    KUBERNETES = "kubernetes"
    SKYPILOT = "skypilot"
    NATIVE = "native"
    UNKNOWN = "unknown"


def kind_of_script(text: str) -> Kind:
    """`sbatch` or `qsub` for a script with their directives, else `unknown`."""
    slurm, sge = _SBATCH.search(text), _QSUB.search(text)
    if slurm and (not sge or slurm.start() < sge.start()):
        return Kind.SBATCH
    return Kind.QSUB if sge else Kind.UNKNOWN


def is_foreign(text: str) -> bool:
    """Whether the file is one of another system (and not a job file of our own)."""
    if kind_of_script(text) is not Kind.UNKNOWN:
        return True
    try:
        return kind_of_yaml(read_yaml(text)) in (Kind.KUBERNETES, Kind.SKYPILOT)
    except BadYaml:
        return False


def kind_of_yaml(documents: list[Item]) -> Kind:
    """What a YAML file is, by its keys."""
    for document in documents:
        if document.get("apiVersion") is not None and document.get("kind") is not None:
            return Kind.KUBERNETES
    keys = {key for document in documents for key, _ in document.items()}
    if keys & {"setup", "num_nodes", "file_mounts", "envs", "service"}:
        return Kind.SKYPILOT
    shapes = [part for document in documents if (part := document.get("resources"))]
    inner = {key for part in shapes for key, _ in part.items()}
    if inner & {"any_of", "ordered", "cloud", "infra", "use_spot", "disk_size", "image_id",
                "instance_type", "accelerator_args", "job_recovery"}:  # fmt: skip
        return Kind.SKYPILOT
    return Kind.NATIVE if keys & {"run", "command"} else Kind.UNKNOWN
