"""Names of output files: `slurm-%j.out`, `logs/%x-%A_%a.txt`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_MARK = re.compile(r"%([0-9]{0,2})([%AaJjNnstuxb])")


@dataclass(frozen=True, slots=True)
class Naming:
    """What the marks of a pattern stand for."""

    number: int
    name: str
    user: str
    node: str = "node"

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @staticmethod
    def of(document: Mapping[str, Any]) -> Naming:
        """From plain data."""
        return Naming(**document)


def file_name(pattern: str, naming: Naming, task: str = "") -> str:
    r"""The file `pattern` names for a job, or for one task of an array.

    Marks as sbatch has them: %j %A %J the number, %a the task (of a job that is no array
    4294967294, as in Slurm), %b the task modulo 10, %x the name, %u the user, %N the node, %n %t %s
    0; a width as in %4j fills with zeros. A backslash anywhere turns marks off.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    number = naming.number + 1 + int(task) if task else naming.number
    marks = {
        "%": "%", "A": str(naming.number), "j": str(number), "J": str(number),
        "a": task or "4294967294", "b": str(int(task) % 10) if task else "4", "x": naming.name,
        "u": naming.user, "N": naming.node, "n": "0", "t": "0", "s": "batch",
    }  # fmt: skip

    def value(match: re.Match[str]) -> str:
        text = marks[match[2]]
        return text.zfill(min(int(match[1] or 0), 10)) if text.isdigit() else text

    return _MARK.sub(value, pattern)
