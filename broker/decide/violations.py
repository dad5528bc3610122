"""What can be wrong with a plan."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ViolationKind(StrEnum):
    """What is wrong with a plan."""

    REFERENCE = "reference"
    COUNT = "count"
    INFEASIBLE = "infeasible"
    CAPACITY = "capacity"
    QUOTA = "quota"
    PACKING = "packing"
    FRAGMENTATION = "fragmentation"
    MONEY = "money"
    BOUND = "bound"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong; `text` names the job, pool or tenant and the figures."""

    kind: ViolationKind
    text: str
