"""What a Kubernetes cluster has, what is free of it, and who waits: one look, by two requests.

What pods ask for is what they hold: the scheduler of the cluster counts the same.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from federation.accelerators import InvalidAccelerator
from regional_agent.kubernetes.api import (
    JOB_NAME,
    LABEL_ATTEMPT,
    LABEL_SITE,
    REPLICAS,
    KubernetesApi,
    KubernetesRefused,
    Object,
)
from regional_agent.kubernetes.cards import CPU, GPU, PRODUCT, model_of, products
from regional_agent.kubernetes.site import KubernetesSite
from regional_agent.kubernetes.told import amount_of, phase
from regional_agent.sense.kubernetes_limits import (
    Left,
    bounded,
    left_of,
    only_by_claim,
    queue_trouble,
    waiting_in,
)
from regional_agent.sense.ray import pool_name
from regional_agent.session.ledger import Pool
from regional_agent.session.resettle import NodeSeen, SiteSeen

GIB = 2**30
PASSING = "node.kubernetes.io/"
"""Taints the cluster itself sets while something is wrong with a node."""
FORBIDDEN, UNKNOWN = 403, 404
UNCOUNTED = "resource quotas cannot be listed: what they forbid counts as free"
HIDDEN = "pods of other namespaces cannot be listed: what they hold counts as free"


Shape = tuple[str, int, int, int]
"""Model, cards, cpus in thousandths, memory in GiB."""


@dataclass(frozen=True, slots=True)
class KubernetesLook:
    """One look: the site as the ledger takes it, what could not be used, in sentences, and by
    model what nodes call it."""

    seen: SiteSeen
    notes: tuple[str, ...] = ()
    products: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))


class KubernetesSense:
    """Looks at one cluster. Raises what `KubernetesApi` does."""

    def __init__(self, site: KubernetesSite, api: KubernetesApi) -> None:
        self._site = site
        self._api = api
        self._no_slices = False

    async def look(self, ours: Collection[str]) -> KubernetesLook:
        """The site now; `ours` are the attempts held here."""
        nodes, (pods, every), left, slices = await asyncio.gather(
            self._api.nodes(), self._api.all_pods(), self._left(), self._slices()
        )
        found = put_together(self._site, nodes, pods, frozenset(ours))
        plugged = {str(n["metadata"]["name"]) for n in nodes if _cards(n)}
        notes = (*found.notes, *left.notes, *only_by_claim(slices, plugged))
        notes = notes if every else (*notes, HIDDEN)
        seen = found.seen
        seen = replace(seen, nodes=bounded(seen.pools, seen.nodes, left))
        if self._site.queue:
            queue = await self._api.local_queue(self._site.queue)
            trouble = queue_trouble(self._site.queue, queue)
            notes = (*notes, trouble) if trouble else notes
            shut = seen.nodes if not trouble else bounded(seen.pools, seen.nodes, Left(0, 0, 0, 0))
            waiting = max(seen.others_waiting, waiting_in(queue) - len(ours) + len(seen.running))
            seen = replace(seen, nodes=shut, others_waiting=waiting)
        return replace(found, seen=seen, notes=notes)

    async def _slices(self) -> list[Object]:
        """None where the server does not know them, or the agent may not look."""
        if self._no_slices:
            return []
        try:
            return await self._api.resource_slices()
        except KubernetesRefused as refused:
            if refused.status not in (FORBIDDEN, UNKNOWN):
                raise
            self._no_slices = True
            return []

    async def _left(self) -> Left:
        """Of the namespace's quotas, where an older Role allows to look at them."""
        try:
            return left_of(await self._api.quotas())
        except KubernetesRefused as refused:
            if refused.status != FORBIDDEN:
                raise
            return Left(notes=(UNCOUNTED,))


def put_together(
    site: KubernetesSite, nodes: Sequence[Object], pods: Sequence[Object], ours: frozenset[str]
) -> KubernetesLook:
    """One look from what the cluster said. Pure. A node that jobs are not sent to, by selector
    or by a taint of the site's, is none; one that is cordoned or not ready takes nothing new."""
    notes: list[str] = []
    members: dict[Shape, list[Object]] = defaultdict(list)
    for node in sorted(nodes, key=lambda n: str(n["metadata"]["name"])):
        shape = _shape(site, node, notes) if _is_for_us(site, node) else None
        if shape is not None:
            members[shape].append(node)
    by_node: dict[str, list[Object]] = defaultdict(list)
    for pod in pods:
        by_node[pod["spec"].get("nodeName") or ""].append(pod)
    pools: list[Pool] = []
    seen: dict[str, tuple[NodeSeen, ...]] = {}
    where: dict[str, tuple[str, int]] = {}
    for (model, cards, cpus_milli, memory_gib), some in sorted(members.items(), key=lambda m: m[0]):
        name = pool_name(model, {pool.name for pool in pools})
        per_node = cards if model != CPU else max(1, cpus_milli // 1000)
        pools.append(Pool(name, model, len(some), per_node, cpus_milli, memory_gib * GIB))
        names = [str(node["metadata"]["name"]) for node in some]
        seen[name] = tuple(
            _seen(node, by_node[each], model) for node, each in zip(some, names, strict=True)
        )
        where |= {each: (name, index) for index, each in enumerate(names)}
    running: dict[str, list[tuple[tuple[str, int], ...]]] = defaultdict(list)
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node in where and (uid := _uid(site, pod)) in ours:
            gang = REPLICAS in (pod["metadata"].get("annotations") or {})
            if gang and running[uid]:
                running[uid][0] += (where[node],)
            else:
                running[uid].append((where[node],))
    others = [
        pod for pod in pods
        if JOB_NAME in (pod["metadata"].get("labels") or {}) and _uid(site, pod) not in ours
    ]  # fmt: skip
    return KubernetesLook(
        SiteSeen(
            pools=tuple(pools),
            nodes=seen,
            running={uid: tuple(copies) for uid, copies in running.items()},
            others_running=sum(phase(pod) == "Running" for pod in others),
            others_waiting=sum(not pod["spec"].get("nodeName") for pod in others),
        ),
        tuple(dict.fromkeys(notes)),
        products(site, (node for some in members.values() for node in some)),
    )


def _uid(site: KubernetesSite, pod: Object) -> str:
    """The attempt a pod belongs to; empty for one that is not this agent's."""
    labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
    return labels.get(LABEL_ATTEMPT, "") if labels.get(LABEL_SITE) == site.mark() else ""


def _taints(node: Object) -> Iterable[str]:
    """Keys of those that keep our pods away; pods that ask for cards tolerate that of cards."""
    for taint in node["spec"].get("taints") or ():
        if taint.get("effect") != "PreferNoSchedule" and taint["key"] != GPU:
            yield str(taint["key"])


def _is_for_us(site: KubernetesSite, node: Object) -> bool:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    wanted = all(labels.get(key) == value for key, value in site.node_selector.items())
    return wanted and all(key.startswith(PASSING) for key in _taints(node))


def _shape(site: KubernetesSite, node: Object, notes: list[str]) -> Shape | None:
    total = (node.get("status") or {}).get("allocatable") or {}
    cards, cpus_milli = _cards(node), round(amount_of(total.get("cpu")) * 1000)
    memory_gib = int(amount_of(total.get("memory")) // GIB)
    if not cards:
        tainted = any(t["key"] == GPU for t in node["spec"].get("taints") or ())
        return (CPU, 0, cpus_milli, memory_gib) if cpus_milli and not tainted else None
    try:
        model = model_of(site, node)
    except InvalidAccelerator as problem:
        remedy = f"label it {PRODUCT}, or say kubernetes.types"
        notes.append(f"a node with {cards} cards is left out: {problem}; {remedy}")
        return None
    return model, cards, cpus_milli, memory_gib


def _cards(node: Object) -> int:
    """Cards its device plugin offers."""
    return int(amount_of(((node.get("status") or {}).get("allocatable") or {}).get(GPU)))


def _seen(node: Object, pods: Iterable[Object], model: str) -> NodeSeen:
    held: dict[str, float] = defaultdict(float)
    for pod in pods:
        for key, amount in requested(pod).items():
            held[key] += amount
    ready = any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in (node.get("status") or {}).get("conditions") or ()
    )
    cordoned = bool(node["spec"].get("unschedulable"))
    slots = held["cpu" if model == CPU else GPU]
    return NodeSeen(
        accelerators_used=-int(-slots // 1),  # a part is taken whole
        cpus_used_milli=round(held["cpu"] * 1000),
        memory_used_bytes=int(held["memory"]),
        takes_jobs=ready and not cordoned and not any(_taints(node)),
    )


def requested(pod: Object) -> dict[str, float]:
    """What a pod asks for, as the cluster's scheduler counts it: its containers together, or
    the largest of those that run before them, whichever is more, and what the runtime adds.
    https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers"""
    spec = pod["spec"]
    total: dict[str, float] = defaultdict(float)
    before: dict[str, float] = defaultdict(float)
    for each in spec.get("initContainers") or ():
        beside = each.get("restartPolicy") == "Always"
        for key, amount in _asked(each).items():
            if beside:
                total[key] += amount
            else:
                before[key] = max(before[key], total[key] + amount)
    for each in spec.get("containers") or ():
        for key, amount in _asked(each).items():
            total[key] += amount
    whole = {key: max(total[key], before[key]) for key in {*total, *before}} | _asked(spec)
    for key, said in (spec.get("overhead") or {}).items():
        whole[key] = whole.get(key, 0.0) + amount_of(said)
    return whole


def _asked(thing: Object) -> dict[str, float]:
    said = (thing.get("resources") or {}).get("requests") or {}
    return {key: amount_of(amount) for key, amount in said.items()}
