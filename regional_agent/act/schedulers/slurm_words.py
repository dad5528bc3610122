"""What sbatch is told of an order: size, features, licences. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil

from federation.refusals import Refusal, RefusalCode
from regional_agent.act.schedulers.port import LaunchOrder
from regional_agent.slurm.site import PoolSource


def shape(order: LaunchOrder, source: PoolSource) -> list[str] | None:
    """Nodes, tasks, cards, cpus and memory; None if such a gang does not fit evenly."""
    replicas, cards = order.replicas, 0
    slots = len(order.places[0].accelerators) if order.places else 0
    if order.accelerator not in ("", "CPU"):
        cards, slots = slots, 0
    cpus = max(1, ceil(order.cpus_milli / 1000), slots)
    memory_mib = ceil(order.memory_bytes / 2**20)
    said = [f"--cpus-per-task={cpus}"]
    if not cards:
        said.append(f"--ntasks={replicas}")
        if order.one_node:
            said.append("--nodes=1")
        elif order.own_nodes:
            said += [f"--nodes={replicas}", "--ntasks-per-node=1"]
        if memory_mib:
            said.append(f"--mem-per-cpu={max(1, ceil(memory_mib / cpus))}")
        return said
    fit = 1 if order.own_nodes else max(1, source.per_node // cards)
    nodes_max = source.nodes if source.gres else replicas
    each = max(k for k in range(1, min(fit, replicas) + 1) if replicas % k == 0)
    if replicas // each > (1 if order.one_node else nodes_max):
        return None
    gres = f"gpu:{source.gres}" if source.gres else "gpu"
    said += [f"--nodes={replicas // each}", f"--ntasks-per-node={each}"]
    said.append(f"--gres={gres}:{cards * each}")
    if memory_mib:
        said.append(f"--mem={memory_mib * each}")
    return said


def known_words(wanted: Sequence[str], known: Collection[str]) -> list[str]:
    """Without alternatives that no node of the site has: Slurm takes no word it has never heard.
    A wish of which nothing would be left stays, to be refused."""
    found = []
    for wish in wanted:
        kept = [word for word in wish.split("|") if word in known]
        found.append("|".join(kept) or wish)
    return found


def licences(order: LaunchOrder) -> str:
    """Of the whole job: what is counted at a Slurm site is its licences."""
    return ",".join(f"{name}:{each * order.replicas}" for name, each in order.extras)


def too_many_cards(order: LaunchOrder, source: PoolSource) -> Refusal | None:
    """Whether one job may not have so many there."""
    most = source.cards_per_job_max
    if most is None or order.accelerator in ("", "CPU") or not order.places:
        return None
    cards = order.replicas * len(order.places[0].accelerators)
    if cards <= most:
        return None
    needed, there = f"{cards} accelerators", f"at most {most} of one job"
    return Refusal(RefusalCode.SITE_LIMIT, order.uid, needed, there)
