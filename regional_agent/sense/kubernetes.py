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
from regional_agent.kubernetes.devices import Offered, offered
from regional_agent.kubernetes.site import KubernetesSite
from regional_agent.kubernetes.told import amount_of, phase
from regional_agent.sense.kubernetes_kueue import Flavour, flavours_left, held_back, left_for
from regional_agent.sense.kubernetes_limits import (
    Left,
    bounded,
    left_of,
    only_by_claim,
    queue_trouble,
    waiting_in,
)
from regional_agent.session.ledger import Pool
from regional_agent.session.pool_names import pool_name
from regional_agent.session.resettle import NodeSeen, SiteSeen

GIB = 2**30
PASSING = "node.kubernetes.io/"
"""Taints the cluster itself sets while something is wrong with a node."""
FORBIDDEN, UNKNOWN = 403, 404
UNREAD = "ClusterQueues cannot be listed: what Kueue would not let go counts as free"
UNCOUNTED = "resource quotas cannot be listed: what they forbid counts as free"
HIDDEN = "pods of other namespaces cannot be listed: what they hold counts as free"


Shape = tuple[str, int, int, int]
"""Model, cards, cpus in thousandths, memory in GiB."""


@dataclass(frozen=True, slots=True)
class KubernetesLook:
    """One look: the site as the ledger takes it, what could not be used, in sentences, and by
    model what nodes call it; by pool the labels of its nodes; of products those that are had by
    claims."""

    seen: SiteSeen
    notes: tuple[str, ...] = ()
    products: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    labels: Mapping[str, tuple[Mapping[str, str], ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    claimed: frozenset[str] = frozenset()


class KubernetesSense:
    """Looks at one cluster. Raises what `KubernetesApi` does."""

    def __init__(self, site: KubernetesSite, api: KubernetesApi) -> None:
        self._site = site
        self._api = api
        self._resource_version: str | None = None

    async def look(self, ours: Collection[str]) -> KubernetesLook:
        """The site now; `ours` are the attempts held here."""
        nodes, (pods, every), left, slices = await asyncio.gather(
            self._api.nodes(), self._api.all_pods(), self._left(), self._slices()
        )
        notes = () if every else (HIDDEN,)
        offer = Offered(tuple(nodes), notes=only_by_claim(slices, _with_cards(nodes)))
        if self._site.devices is not None:
            offer = offered(self._site, nodes, slices, await self._claims())
        found = put_together(
            self._site, offer.nodes, [*pods, *offer.holders], frozenset(ours)
        )
        notes = (*found.notes, *left.notes, *offer.notes, *notes)
        seen = replace(found.seen, nodes=bounded(found.seen.pools, found.seen.nodes, left))
        found = replace(found, seen=seen, notes=notes, claimed=offer.products)
        return await self._queued(found, ours) if self._site.queue else found

    async def _queued(self, found: KubernetesLook, ours: Collection[str]) -> KubernetesLook:
        """Within what Kueue lets go."""
        seen = found.seen
        queue = await self._api.local_queue(self._site.queue)
        trouble = queue_trouble(self._site.queue, queue)
        flavours: tuple[Flavour, ...] | None = ()
        if queue is not None and not trouble:
            flavours, trouble = await self._flavours(str(queue["spec"]["clusterQueue"]))
        nodes = dict(seen.nodes)
        for pool in seen.pools:
            if flavours is not None:
                left = left_for(found.labels[pool.name], flavours)
                nodes |= bounded((pool,), seen.nodes, left)
        waiting = max(seen.others_waiting, waiting_in(queue) - len(ours) + len(seen.running))
        notes = (*found.notes, trouble) if trouble else found.notes
        return replace(
            found, seen=replace(seen, nodes=nodes, others_waiting=waiting), notes=notes
        )

    async def _flavours(self, name: str) -> tuple[tuple[Flavour, ...] | None, str]:
        """What is left in the ClusterQueue; nothing, or None where that is not known, and why."""
        try:
            queues, flavours = await asyncio.gather(
                self._api.cluster_queues(), self._api.flavours()
            )
        except KubernetesRefused as refused:
            if refused.status != FORBIDDEN:
                raise
            return None, UNREAD
        for queue in queues:
            if queue["metadata"]["name"] == name:
                stopped = held_back(queue)
                return ((), stopped) if stopped else (flavours_left(queue, queues, flavours), "")
        return (), f"there is no ClusterQueue {name}: nothing is let go"

    async def _slices(self) -> list[Object]:
        """None where the server does not know them, or the agent may not look."""
        if self._resource_version is None:
            self._resource_version = await self._api.resource_version()
        if not self._resource_version:
            return []
        try:
            return await self._api.resource_slices(self._resource_version)
        except KubernetesRefused as refused:
            if refused.status not in (FORBIDDEN, UNKNOWN):
                raise
            self._resource_version = ""
            return []

    async def _claims(self) -> list[Object]:
        if not self._resource_version:
            return []
        return await self._api.resource_claims(self._resource_version)

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
    labels: dict[str, tuple[Mapping[str, str], ...]] = {}
    for (model, cards, cpus_milli, memory_gib), some in sorted(members.items(), key=lambda m: m[0]):
        name = pool_name(model, {pool.name for pool in pools})
        per_node = cards if model != CPU else max(1, cpus_milli // 1000)
        pools.append(Pool(name, model, len(some), per_node, cpus_milli, memory_gib * GIB))
        names = [str(node["metadata"]["name"]) for node in some]
        seen[name] = tuple(
            _seen(node, by_node[each], model) for node, each in zip(some, names, strict=True)
        )
        where |= {each: (name, index) for index, each in enumerate(names)}
        labels[name] = tuple(node["metadata"].get("labels") or {} for node in some)
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
        labels,
    )


def _with_cards(nodes: Iterable[Object]) -> frozenset[str]:
    """Names of nodes whose device plugin offers some."""
    return frozenset(str(node["metadata"]["name"]) for node in nodes if _cards(node))


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
