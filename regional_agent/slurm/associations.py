"""What the site's accounting lets one user hold: limits of associations and of QOS, as sacctmgr
tells them. Pure.

Limits of parents and of partitions' own QOS are not read: Slurm itself refuses beyond them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from regional_agent.slurm.limits import walltime_s

ASSOCIATION = ("Account", "QOS", "DefaultQOS", "MaxSubmit", "MaxWall", "GrpTRES", "GrpWall")
QOS = ("Name", "MaxSubmitPU", "MaxSubmitPA", "GrpSubmit", "MaxWall", "MaxTRESPU", "MaxTRESPA",
       "GrpTRES")  # fmt: skip
_CARDS = re.compile(r"gres/gpu=(\d+)")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of everything a user has at once there; None = no limit. `submit_max` counts jobs that wait
    or run."""

    submit_max: int | None = None
    walltime_max_s: int | None = None
    cards_max: int | None = None

    def within(self, other: Bounds) -> Bounds:
        """The tighter of both."""
        return Bounds(
            _least(self.submit_max, other.submit_max),
            _least(self.walltime_max_s, other.walltime_max_s),
            _least(self.cards_max, other.cards_max),
        )


def association_words(user: str) -> tuple[str, ...]:
    """The question what a user may do."""
    fields = ",".join(ASSOCIATION)
    return ("sacctmgr", "-n", "-P", "show", "assoc", f"user={user}", f"format={fields}")


def qos_words() -> tuple[str, ...]:
    """The question what each QOS allows."""
    return ("sacctmgr", "-n", "-P", "show", "qos", f"format={','.join(QOS)}")


def parse_bounds(
    associations: str, qos: str, accounts: Collection[str], wanted_qos: str
) -> Bounds | None:
    """The widest bounds among the accounts used (empty: all of the user's); None where the user has
    none of them, or accounting says nothing."""
    of_qos = {said["Name"]: said for said in _rows(qos, QOS)}
    found: list[Bounds] = []
    for said in _rows(associations, ASSOCIATION):
        if accounts and said["Account"] not in accounts:
            continue
        own = Bounds(
            _number(said["MaxSubmit"]), walltime_s(said["MaxWall"]) or None, _cards(said["GrpTRES"])
        )
        name = wanted_qos or said["DefaultQOS"] or said["QOS"].split(",")[0]
        limits = of_qos.get(name)
        found.append(own.within(_qos_bounds(limits)) if limits else own)
    if not found:
        return None
    return Bounds(
        _most([b.submit_max for b in found]),
        _most([b.walltime_max_s for b in found]),
        _most([b.cards_max for b in found]),
    )


def _qos_bounds(said: dict[str, str]) -> Bounds:
    bounds = Bounds(walltime_max_s=walltime_s(said["MaxWall"]) or None)
    for name in ("MaxSubmitPU", "MaxSubmitPA", "GrpSubmit"):
        bounds = bounds.within(Bounds(submit_max=_number(said[name])))
    for name in ("MaxTRESPU", "MaxTRESPA", "GrpTRES"):
        bounds = bounds.within(Bounds(cards_max=_cards(said[name])))
    return bounds


def _rows(out: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
    lines = (line.split("|") for line in out.splitlines())
    return [dict(zip(fields, parts, strict=True)) for parts in lines if len(parts) == len(fields)]


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _cards(text: str) -> int | None:
    match = _CARDS.search(text)
    return int(match[1]) if match else None


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _most(some: list[int | None]) -> int | None:
    known = [each for each in some if each is not None]
    return max(known) if len(known) == len(some) else None
