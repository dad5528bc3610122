"""Pools of this host and those an operator declares.

A declared pool needs no card to be there (`simulated: true`): such a federation can be tried on a
laptop, and every report says which cards are simulated.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import psutil

from federation.accelerators import InvalidAccelerator, identify
from regional_agent.session.ledger import Pool

CPU_POOL = "cpu"
CPU = "CPU"


@dataclass(frozen=True, slots=True)
class Card:
    """An accelerator of this host: its index, its name as the driver tells it, its memory, and
    its UUID where the driver tells one."""

    index: int
    name: str
    memory_bytes: int
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class CardUse:
    """What one card does now. `processes`: pids that hold memory on it."""

    index: int
    busy_percent: int
    used_bytes: int
    processes: tuple[int, ...]


class Cards(Protocol):
    """The driver's view of the cards of this host."""

    def cards(self) -> tuple[Card, ...]:
        """All cards that can be used, by index; none if there is no driver."""

    def use(self) -> tuple[CardUse, ...]:
        """What each of `cards` does now."""


@dataclass(frozen=True, slots=True)
class Host:
    """Processors this process may use, in thousandths, and memory in bytes."""

    cpus_milli: int
    memory_bytes: int


def read_host() -> Host:
    """This machine, bounded by the affinity and the control group it runs in."""
    cpus = len(os.sched_getaffinity(0))
    memory_bytes = psutil.virtual_memory().total
    limit = _control_group_memory_bytes()
    return Host(cpus * 1000, min(memory_bytes, limit) if limit else memory_bytes)


def found_pools(host: Host, cards: Sequence[Card]) -> tuple[Pool, ...]:
    """The pools of one host: one per accelerator model, or a pool of job slots if there is none.

    Cpus and memory are divided over the pools by their cards. Cards the alias table does not
    know keep the driver's name: nobody asks for it by another.
    """
    if not cards:
        slots = max(1, host.cpus_milli // 1000)
        return (Pool(CPU_POOL, CPU, 1, slots, host.cpus_milli, host.memory_bytes),)
    models = Counter(_canonical(card) for card in cards)
    return tuple(
        Pool(
            name=model.lower(),
            accelerator=model,
            nodes=1,
            accelerators_per_node=count,
            cpus_milli=host.cpus_milli * count // len(cards),
            memory_bytes=host.memory_bytes * count // len(cards),
            cards=_uuids(model, cards),
        )
        for model, count in sorted(models.items())
    )


def with_cards(pools: Sequence[Pool], cards: Sequence[Card]) -> tuple[Pool, ...]:
    """Declared pools of this host with the UUIDs of their cards, where the pool is all there is
    of the model; of a part nobody says which cards it is."""
    made = []
    for pool in pools:
        uuids = _uuids(pool.accelerator, cards)
        whole = len(uuids) == pool.nodes * pool.accelerators_per_node and not pool.simulated
        made.append(replace(pool, cards=uuids) if whole else pool)
    return tuple(made)


def _uuids(model: str, cards: Sequence[Card]) -> tuple[str, ...]:
    return tuple(card.uuid for card in cards if card.uuid and _canonical(card) == model)


def _canonical(card: Card) -> str:
    try:
        return identify(card.name, card.memory_bytes).name
    except InvalidAccelerator:
        return card.name


def _control_group_memory_bytes() -> int:
    """The memory limit of our control group (v2, then v1); 0 = none."""
    for path in (
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ):
        try:
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            return int(text)
    return 0
