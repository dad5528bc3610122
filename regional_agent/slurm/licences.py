"""The licences a site's Slurm counts, as `scontrol -o show lic` tells them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from regional_agent.slurm.limits import fields_of

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?")
LICENCES_MAX = 64


@dataclass(frozen=True, slots=True)
class Licence:
    """`total` for jobs of this cluster, `used` by them now; what a reservation keeps for others
    is no part of the total."""

    name: str
    total: int
    used: int


def parse_licences(out: str) -> tuple[Licence, ...]:
    """Those whose names a job can write down."""
    lines = (fields_of(line) for line in out.splitlines())
    return named_licences(
        (
            said.get("LicenseName", ""),
            _number(said.get("Total", "")),
            _number(said.get("Reserved", "")),
            _number(said.get("Used", "")),
        )
        for said in lines
    )


def named_licences(found: Iterable[tuple[str, int, int, int]]) -> tuple[Licence, ...]:
    """Of names, totals, what is reserved and used: those a job can write down, at most
    LICENCES_MAX."""
    kept = [
        Licence(name, max(0, total - reserved), used)
        for name, total, reserved, used in found
        if _NAME.fullmatch(name)
    ]
    return tuple(kept[:LICENCES_MAX])


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
