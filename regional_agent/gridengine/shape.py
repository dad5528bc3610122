"""How many slots of which parallel environment a job asks for. Pure.

Grid Engine counts slots, and what is counted per slot is multiplied by them; it does not know that
a replica must not be cut in two. So an environment fits only where its rule keeps replicas whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from regional_agent.gridengine.configuration import Environment


@dataclass(frozen=True, slots=True)
class Wanted:
    """Of each of `replicas`: `cpus` and `cards`. `one_host`: all of them on one. `slots_max`: those
    of a host; `hosts_max`: hosts there are. `per_job`: cards are counted once a job, not once a
    slot."""

    replicas: int
    cpus: int
    cards: int
    one_host: bool
    slots_max: int
    hosts_max: int
    per_job: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """`slots` of the job in `environment`, none for one slot; `cards` as they are asked for."""

    slots: int
    environment: str
    cards: int


def shape_of(wanted: Wanted, environments: Iterable[Environment]) -> Shape | str:
    """The shape of a job; a sentence where the site has none for it."""
    known = list(environments)
    each = wanted.cpus
    if wanted.cards and not wanted.per_job:
        fits = [n for n in range(each, wanted.cards + 1) if wanted.cards % n == 0]
        if not fits:
            return (
                f"{each} cpus with {wanted.cards} cards, which count per slot here: a replica may "
                "have as many cpus as cards (a resource that is consumable JOB has no such bound)"
            )
        each = fits[0]
    slots = wanted.replicas * each
    if slots == 1:
        return Shape(1, "", wanted.cards)
    together = wanted.one_host or wanted.replicas == 1
    for environment in sorted(known, key=_preference):
        if _fits(environment, wanted, slots, each, together=together):
            asked = wanted.cards * wanted.replicas if wanted.per_job else wanted.cards // each
            return Shape(slots, environment.name, asked)
    return _missing(wanted, known, slots, each)


def _preference(environment: Environment) -> tuple[bool, bool]:
    """One that leaves open how slots are spread first, one that keeps to a host last."""
    return environment.one_host, bool(environment.per_host)


def _fits(
    environment: Environment, wanted: Wanted, slots: int, each: int, *, together: bool
) -> bool:
    if slots > environment.slots:
        return False
    if environment.one_host or environment.per_host == slots:
        return slots <= wanted.slots_max
    if together or not environment.spreads or (wanted.cards and wanted.per_job):
        return False
    per_host = environment.per_host
    if per_host:
        whole = per_host % each == 0 and slots % per_host == 0
        return (
            whole and per_host <= wanted.slots_max and slots // per_host <= wanted.hosts_max
        )
    return each == 1


def _missing(wanted: Wanted, known: list[Environment], slots: int, each: int) -> str:
    there = ", ".join(f"{e.name} ({e.rule}{'' if e.spreads else ', no slaves'})" for e in known)
    where = "on one host" if wanted.one_host or wanted.replicas == 1 else "whole on their hosts"
    what = f"{wanted.replicas} replicas of {each} slots {where}"
    return f"a parallel environment for {what} ({slots} in all); the queue has {there or 'none'}"
