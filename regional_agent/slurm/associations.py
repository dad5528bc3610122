"""What the site's accounting lets one user hold: limits of associations and of QOS, as sacctmgr
tells them. Pure.

An account's group limits bind everybody below it together, so those of its parents count too; its
limits for one job or user are inherited, and stand in the user's own row. Of limits set in several
places the tightest is taken. What others use of a shared one is not known: Slurm lets jobs wait.
https://slurm.schedmd.com/resource_limits.html
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from regional_agent.slurm.limits import walltime_s

ASSOCIATION = ("Account", "ParentName", "User", "QOS", "DefaultQOS", "MaxSubmit", "GrpSubmit",
               "MaxWall", "GrpTRES", "MaxTRES")  # fmt: skip
QOS = ("Name", "MaxSubmitPU", "MaxSubmitPA", "GrpSubmit", "MaxWall", "MaxTRESPU", "MaxTRESPA",
       "GrpTRES", "MaxTRES")  # fmt: skip
DEPTH_MAX = 8
"""How many levels of parent accounts are asked for."""
_CARDS = re.compile(r"gres/gpu=(\d+)")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of everything a user has at once there; None = no limit. `submit_max` counts jobs that wait
    or run; `cards_per_job_max` is of one job."""

    submit_max: int | None = None
    walltime_max_s: int | None = None
    cards_max: int | None = None
    cards_per_job_max: int | None = None

    def within(self, other: Bounds) -> Bounds:
        """The tighter of both."""
        return Bounds(
            _least(self.submit_max, other.submit_max),
            _least(self.walltime_max_s, other.walltime_max_s),
            _least(self.cards_max, other.cards_max),
            _least(self.cards_per_job_max, other.cards_per_job_max),
        )


def association_words(*where: str) -> tuple[str, ...]:
    """The question what some users or accounts may do, as `user=NAME`, `account=A,B`."""
    fields = ",".join(ASSOCIATION)
    return ("sacctmgr", "-n", "-P", "show", "assoc", *where, f"format={fields}")


def qos_words() -> tuple[str, ...]:
    """The question what each QOS allows."""
    return ("sacctmgr", "-n", "-P", "show", "qos", f"format={','.join(QOS)}")


def accounts_of(out: str, accounts: Collection[str] = ()) -> frozenset[str]:
    """The accounts a user has, of these (empty: any)."""
    found = {said["Account"] for said in _rows(out, ASSOCIATION)}
    return frozenset(found.intersection(accounts) if accounts else found)


def parents_of(out: str) -> dict[str, str]:
    """By account its parent, of answers about accounts."""
    rows = _rows(out, ASSOCIATION)
    return {s["Account"]: s["ParentName"] for s in rows if not s["User"] and s["ParentName"]}


def parse_bounds(
    own: str, qos: str, accounts: Collection[str], wanted_qos: str, above: str = ""
) -> Bounds | None:
    """The widest bounds among the accounts used (empty: all of the user's); None where the user has
    none of them, or accounting says nothing. `own` is told of the user, `above` of the accounts and
    their parents."""
    of_qos = parse_qos(qos)
    groups = {s["Account"]: _group_bounds(s) for s in _rows(above, ASSOCIATION) if not s["User"]}
    parents = parents_of(above)
    found: list[Bounds] = []
    for said in _rows(own, ASSOCIATION):
        if accounts and said["Account"] not in accounts:
            continue
        bounds = _group_bounds(said).within(
            Bounds(
                _number(said["MaxSubmit"]),
                walltime_s(said["MaxWall"]) or None,
                cards_per_job_max=_cards(said["MaxTRES"]),
            )
        )
        account, seen = said["Account"], set[str]()
        while account and account not in seen:
            seen.add(account)
            bounds = bounds.within(groups.get(account, Bounds()))
            account = parents.get(account, "")
        name = wanted_qos or said["DefaultQOS"] or said["QOS"].split(",")[0]
        found.append(bounds.within(of_qos.get(name, Bounds())))
    if not found:
        return None
    return Bounds(
        _most([b.submit_max for b in found]),
        _most([b.walltime_max_s for b in found]),
        _most([b.cards_max for b in found]),
        _most([b.cards_per_job_max for b in found]),
    )


def _group_bounds(said: dict[str, str]) -> Bounds:
    return Bounds(_number(said["GrpSubmit"]), None, _cards(said["GrpTRES"]))


def parse_qos(out: str) -> dict[str, Bounds]:
    """What each QOS allows, by name."""
    return {said["Name"]: _qos_bounds(said) for said in _rows(out, QOS)}


def _qos_bounds(said: dict[str, str]) -> Bounds:
    bounds = Bounds(
        walltime_max_s=walltime_s(said["MaxWall"]) or None,
        cards_per_job_max=_cards(said["MaxTRES"]),
    )
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
