"""Nodes as Slurm's JSON has them: 22.05 by `sinfo --json`, from 23.02 on by `scontrol show nodes
--json`, where states and features are lists. Reservations by `scontrol show reservation`.

The 22.05 form was read from a running cluster; the newer ones follow its documentation and were not
tried on one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MIB = 2**20
_GRES = re.compile(r"gpu(?::([^:(,]+))?:(\d+)(?:\([^)]*\))?")
_RANGE = re.compile(r"([^\[,]+)(?:\[([^\]]*)\])?")
TAKES_JOBS = frozenset({"idle", "mixed", "allocated", "alloc", "mix", "completing"})
TAKES_NONE = frozenset({
    "drain", "draining", "drained", "down", "fail", "failing", "maint", "maintenance", "reserved",
    "planned_down", "not_responding", "no_respond", "power_down", "powering_down", "powered_down",
    "reboot_issued", "reboot_requested", "invalid_reg", "blocked", "future", "unknown", "error",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node. `gres` is the type of its cards as the site calls it, empty where it has none
    or does not say; `cards` those there are, `cards_used` those jobs hold."""

    name: str
    partitions: tuple[str, ...]
    takes_jobs: bool
    gres: str
    cards: int
    cards_used: int
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    features: tuple[str, ...]
    state: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """A reservation of nodes, times in epoch seconds. `maintenance`: for nobody's jobs."""

    name: str
    nodes: frozenset[str]
    from_s: int
    until_s: int
    maintenance: bool


def parse_nodes(out: str) -> tuple[NodeFacts, ...]:
    """Raises ValueError for something that is no list of nodes."""
    return nodes_of(json.loads(out))


def nodes_of(body: Any) -> tuple[NodeFacts, ...]:
    """Of an answer that was read. Raises ValueError for something that is no list of nodes."""
    found = body.get("nodes") if isinstance(body, dict) else None
    if not isinstance(found, list):
        raise ValueError("Slurm's JSON names no nodes")
    return tuple(_node(said) for said in found)


def _node(said: dict[str, Any]) -> NodeFacts:
    words = [*words_of(said.get("state")), *words_of(said.get("state_flags"))]
    words = [word.lower() for word in words]
    free = any(w in TAKES_JOBS for w in words) and not any(w in TAKES_NONE for w in words)
    kind, cards = _cards(str(said.get("gres") or ""))
    return NodeFacts(
        name=str(said["name"]),
        partitions=tuple(words_of(said.get("partitions"))),
        takes_jobs=free,
        gres=kind,
        cards=cards,
        cards_used=_cards(str(said.get("gres_used") or ""))[1],
        cpus=number_of(said.get("cpus")),
        cpus_used=number_of(said.get("alloc_cpus")),
        memory_mib=number_of(said.get("real_memory")),
        memory_used_mib=number_of(said.get("alloc_memory")),
        features=tuple(words_of(said.get("active_features") or said.get("features"))),
        state="+".join(words),
    )


def _cards(text: str) -> tuple[str, int]:
    """The type and the number of the GPUs in `gpu:h100:8(S:0-1)`; several types count as none,
    because nobody could say which a job will get."""
    found = _GRES.findall(text)
    kinds = {kind for kind, _ in found}
    if len(kinds) != 1:
        return "", 0
    return kinds.pop(), sum(int(count) for _, count in found)


def parse_reservations(out: str) -> tuple[Reserved, ...]:
    """Of `scontrol -o show reservation` with times in epoch seconds."""
    found = []
    for line in out.splitlines():
        said = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if "ReservationName" not in said:
            continue
        found.append(
            Reserved(
                name=said["ReservationName"],
                nodes=frozenset(expand(said.get("Nodes", ""))),
                from_s=number_of(said.get("StartTime")),
                until_s=number_of(said.get("EndTime")),
                maintenance="MAINT" in said.get("Flags", ""),
            )
        )
    return tuple(found)


def expand(text: str) -> Iterable[str]:
    """Names of a node list, `n[1-3,07],login`."""
    if text in ("", "(null)", "None"):
        return
    for prefix, ranges in _RANGE.findall(text):
        if not ranges:
            yield prefix
        for part in ranges.split(",") if ranges else ():
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield f"{prefix}{number:0{len(first)}d}"


def words_of(value: object) -> list[str]:
    """A list of words, or what stands for one in a text."""
    if isinstance(value, list):
        return [str(each) for each in value]
    return [word for word in re.split(r"[,+]", str(value or "")) if word]


def number_of(value: object) -> int:
    """A number, which newer releases wrap as `{"set": true, "number": 8}`."""
    if isinstance(value, dict):
        value = value.get("number", 0) if value.get("set", True) else 0
    try:
        return int(float(str(value)))
    except ValueError:
        return 0
