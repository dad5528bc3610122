"""The reservation ledger: which attempt holds which cards, cpus and memory of the site.

A frozen value: `reserve` and `release` return the next ledger. The site's own check is the last
word on capacity, so this counts everything the agent has said yes to and not yet given back,
whatever the broker or the local scheduler believe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from federation.features import has_features, in_words
from federation.refusals import Refusal, RefusalCode
from regional_agent.session.requests import Counts, Part, Place, Request

__all__ = [
    "OTHERS", "Ledger", "NodeFree", "NodeGroup", "Part", "Place", "Pool", "Request", "Reservation",
]  # fmt: skip

OTHERS = "~"
"""Begins the names under which the ledger keeps what is held by somebody else at the site."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Identical nodes; amounts are per node. The units of accelerator `CPU` are job slots.
    `cards`: UUIDs of all its accelerators, where they are known. `extras`: other things that are
    counted, over the whole pool. `racks`: by node index the rack or switch it is in ("" = not
    known), where they differ; empty: `domain` is that of all nodes. `features`: what the site calls
    its nodes, by their index; empty where no node has any. `site_extras`: those of the extras that
    all pools of the site share."""

    name: str
    accelerator: str
    nodes: int
    accelerators_per_node: int
    cpus_milli: int
    memory_bytes: int
    simulated: bool = False
    domain: str = ""
    cards: tuple[str, ...] = ()
    extras: Counts = ()
    racks: tuple[str, ...] = ()
    features: tuple[frozenset[str], ...] = ()
    site_extras: frozenset[str] = frozenset()

    def rack(self, node: int) -> str:
        """The rack or switch of a node; "" where it is not known."""
        if not self.racks:
            return self.domain
        return self.racks[node] if node < len(self.racks) else ""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Places of copy (lane) `l` and rank `r` stand at `l * replicas + r`; none: it waits."""

    uid: str
    request: Request
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """`count` nodes alike in totals and in what is free on each of them."""

    count: int
    accelerator: str
    total: int
    free: int
    cpus_milli: int
    free_cpus_milli: int
    memory_bytes: int
    free_memory_bytes: int
    domain: str
    simulated: bool
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFree:
    """What is free on one node: indices of cards, milli-cpus, bytes; and what it is."""

    accelerators: tuple[int, ...]
    cpus_milli: int
    memory_bytes: int
    features: frozenset[str] = frozenset()

    def fits(self, request: Request) -> bool:
        """True if one replica of `request` can be put here."""
        return (
            len(self.accelerators) >= request.accelerators
            and self.cpus_milli >= request.cpus_milli
            and self.memory_bytes >= request.memory_bytes
            and has_features(request.features, self.features)
        )

    def without(self, request: Request, cards: tuple[int, ...]) -> NodeFree:
        """What is left once a replica of `request` sits on `cards`."""
        return NodeFree(
            tuple(i for i in self.accelerators if i not in cards),
            self.cpus_milli - request.cpus_milli,
            self.memory_bytes - request.memory_bytes,
            self.features,
        )

    def with_back(self, request: Request, cards: tuple[int, ...]) -> NodeFree:
        """What is there once a replica of `request` has left `cards`."""
        return NodeFree(
            tuple(sorted((*self.accelerators, *cards))),
            self.cpus_milli + request.cpus_milli,
            self.memory_bytes + request.memory_bytes,
            self.features,
        )


Nodes = Mapping[str, tuple[NodeFree, ...]]
"""Per pool what is free on each node."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The pools of the site and who holds what in them.

    `nodes` follows from the rest and is carried along so that a reservation costs by its own
    size, not by how many there are; None where it has to be worked out.
    """

    pools: tuple[Pool, ...]
    reservations: Mapping[str, Reservation] = field(default_factory=lambda: MappingProxyType({}))
    nodes: Nodes | None = field(default=None, compare=False, repr=False)

    def reserve(self, uid: str, request: Request) -> tuple[Ledger, Reservation] | Refusal:
        """Hold capacity for `uid`, on the fullest nodes that fit so that empty ones stay whole.

        The same uid and request again gives the same reservation. All or nothing.
        """
        held = self.reservations.get(uid)
        if held is not None:
            if held.request == request:
                return self, held
            return Refusal(
                RefusalCode.SPEC_MISMATCH,
                uid,
                available="another reservation of the same attempt",
            )
        pools = {pool.name: pool for pool in self.pools}
        places: tuple[Place, ...] = ()
        nodes: dict[str, list[NodeFree]] = {}
        for part in request.in_parts:
            pool = pools.get(part.pool)
            if pool is None:
                return Refusal(RefusalCode.UNSUPPORTED, uid, needed=f"pool {part.pool!r}")
            if pool.name not in nodes:
                nodes[pool.name] = self._nodes(pool)
            found = self._seats(pool, nodes[pool.name], request, part)
            if isinstance(found, Refusal):
                return found
            places += found
        made = Reservation(uid, request, places)
        return self._with({**self.reservations, uid: made}, _moved(self._all(), made, -1)), made

    def _seats(
        self, pool: Pool, nodes: list[NodeFree], request: Request, part: Part
    ) -> tuple[Place, ...] | Refusal:
        """Places for a part of a gang in a pool, taken off `nodes`."""
        piece = request.in_wholes
        wanted = part.replicas // request.replicas if request.one_node else part.replicas
        indices: Sequence[int] = range(len(nodes))
        if part.rack:
            indices = [index for index in indices if pool.rack(index) == part.rack]
        places = _pack(pool, nodes, piece, (wanted, indices))
        if len(places) < wanted:
            where = f" in {part.rack}" if part.rack else ""
            return Refusal(
                RefusalCode.CAPACITY_TAKEN,
                f"pool {pool.name}{where}",
                needed=_needs(pool, piece, wanted),
                available=f"room for {len(places)} replicas now",
            )
        for name, each in request.extras:
            needed, left = each * part.replicas, self.extras(pool).get(name, 0)
            if needed > left:
                return Refusal(
                    RefusalCode.NO_EXTRAS, f"pool {pool.name}", f"{needed} {name}", f"{left}"
                )
        for place in places if request.parts else ():
            nodes[place.node] = nodes[place.node].without(piece, place.accelerators)
        if request.one_node:
            return tuple(one for place in places for one in _parts(place, request))
        return places

    def join_queue(self, uid: str, request: Request) -> tuple[Ledger, Reservation] | Refusal:
        """As `reserve`; where nothing is free it waits, and holds nothing until `seated`."""
        made = self.reserve(uid, request)
        if not isinstance(made, Refusal) or made.code is not RefusalCode.CAPACITY_TAKEN:
            return made
        empty = Ledger(self.pools).reserve(uid, request)
        if isinstance(empty, Refusal):
            return replace(empty, available=f"{empty.available}, with nothing running")
        waits = Reservation(uid, request, ())
        return self._with({**self.reservations, uid: waits}, self._all()), waits

    def seated(self, uid: str) -> Ledger:
        """With places for one that waits, if there are enough by now."""
        held = self.reservations.get(uid)
        if held is None or held.places:
            return self
        made = self.release(uid).reserve(uid, held.request)
        return self if isinstance(made, Refusal) else made[0]

    def adopt(self, reservation: Reservation) -> Ledger:
        """Put a journalled reservation back after a restart, whatever else is held."""
        return self._with({**self.reservations, reservation.uid: reservation}, None)

    def release(self, uid: str) -> Ledger:
        """Give everything of `uid` back; one that holds nothing changes nothing."""
        held = self.reservations.get(uid)
        if held is None:
            return self
        left = {k: r for k, r in self.reservations.items() if k != uid}
        return self._with(left, _moved(self._all(), held, 1))

    def narrow(self, uid: str, width: int) -> Ledger:
        """Give back the lanes of an array from `width` on; no wider than it was."""
        held = self.reservations.get(uid)
        if held is None or width >= held.request.width:
            return self
        kept = Reservation(
            uid,
            replace(held.request, width=width),
            held.places[: width * held.request.replicas],
        )
        return self._with({**self.reservations, uid: kept}, None)

    def free(self) -> Mapping[str, tuple[NodeGroup, ...]]:
        """Per pool what is free now, nodes alike merged, the freest group first."""
        return {pool.name: self.groups(pool) for pool in self.pools}

    def extras(self, pool: Pool) -> dict[str, int]:
        """What is free of the pool's extras; below 0 where a site has fewer than are held."""
        left = dict(pool.extras)
        for held in self.reservations.values() if left else ():
            for name, each in held.request.extras:
                everywhere = name in pool.site_extras
                here = sum(everywhere or place.pool == pool.name for place in held.places)
                if here:
                    left[name] = left.get(name, 0) - each * here
        return left

    def groups(self, pool: Pool, without: frozenset[int] = frozenset()) -> tuple[NodeGroup, ...]:
        """What is free in one pool, leaving out the nodes with indices in `without`."""
        nodes = enumerate(self._nodes(pool))
        return _groups(pool, [(pool.rack(i), node) for i, node in nodes if i not in without])

    def free_on(self, pool: Pool) -> tuple[NodeFree, ...]:
        """What is free on each node of a pool."""
        return tuple(self._nodes(pool))

    def _with(self, reservations: dict[str, Reservation], nodes: Nodes | None) -> Ledger:
        return Ledger(self.pools, MappingProxyType(reservations), nodes)

    def _all(self) -> Nodes:
        return self.nodes or {pool.name: tuple(self._nodes(pool)) for pool in self.pools}

    def _nodes(self, pool: Pool) -> list[NodeFree]:
        if self.nodes is not None:
            return list(self.nodes[pool.name])
        everything = NodeFree(
            tuple(range(pool.accelerators_per_node)), pool.cpus_milli, pool.memory_bytes
        )
        nodes = [everything] * pool.nodes
        for index, features in enumerate(pool.features[: pool.nodes]):
            nodes[index] = replace(everything, features=features)
        for held in self.reservations.values():
            for place in held.places:
                # A site may have shrunk since: what lies outside is held nowhere.
                if place.pool == pool.name and place.node < pool.nodes:
                    left = nodes[place.node].without(held.request, place.accelerators)
                    nodes[place.node] = left
        return nodes


def _moved(before: Nodes, reservation: Reservation, sign: int) -> Nodes | None:
    """The nodes once a reservation is taken (-1) or given back (1); None where places overlap,
    as they may among those adopted from a journal."""
    changed: dict[tuple[str, int], NodeFree] = {}
    for place in reservation.places:
        pool = before.get(place.pool, ())
        if place.node >= len(pool):
            return None
        node = changed.get((place.pool, place.node)) or pool[place.node]
        cards = place.accelerators
        if any((card in node.accelerators) == (sign > 0) for card in cards):
            return None
        move = node.with_back if sign > 0 else node.without
        changed[place.pool, place.node] = move(reservation.request, cards)
    after = {name: list(pool) for name, pool in before.items()}
    for (name, index), node in changed.items():
        after[name][index] = node
    return {name: tuple(pool) for name, pool in after.items()}


def _parts(place: Place, request: Request) -> Iterator[Place]:
    """The places of the replicas that share a place."""
    each = request.accelerators
    for rank in range(request.replicas):
        yield Place(place.pool, place.node, place.accelerators[rank * each : (rank + 1) * each])


def _pack(
    pool: Pool, nodes: list[NodeFree], request: Request, what: tuple[int, Sequence[int]]
) -> tuple[Place, ...]:
    """Places for up to so many replicas on nodes of some indices: best fit, exact because all of
    them are alike."""
    (wanted, indices), left = what, list(nodes)
    places: list[Place] = []
    order = sorted(indices, key=lambda i: (len(left[i].accelerators), i))
    for index in order:
        end = min(wanted, len(places) + 1) if request.own_nodes else wanted
        while len(places) < end and left[index].fits(request):
            cards = left[index].accelerators[: request.accelerators]
            left[index] = left[index].without(request, cards)
            places.append(Place(pool.name, index, cards))
            needs_some = request.accelerators or request.cpus_milli or request.memory_bytes
            if not needs_some and not request.own_nodes:
                # Something that needs nothing fits without end on the first node.
                return tuple([places[0]] * wanted)
    return tuple(places)


def _groups(pool: Pool, nodes: list[tuple[str, NodeFree]]) -> tuple[NodeGroup, ...]:
    """Nodes with their racks as groups of those alike."""
    alike = Counter(
        (
            len(n.accelerators),
            max(n.cpus_milli, 0),
            max(n.memory_bytes, 0),
            rack,
            tuple(sorted(n.features)),
        )
        for rack, n in nodes
    )
    return tuple(
        NodeGroup(
            count=count,
            accelerator=pool.accelerator,
            total=pool.accelerators_per_node,
            free=free,
            cpus_milli=pool.cpus_milli,
            free_cpus_milli=cpus_milli,
            memory_bytes=pool.memory_bytes,
            free_memory_bytes=memory_bytes,
            domain=rack,
            simulated=pool.simulated,
            features=features,
        )
        for (free, cpus_milli, memory_bytes, rack, features), count in sorted(
            alike.items(), reverse=True
        )
    )


def _needs(pool: Pool, request: Request, replicas: int) -> str:
    where = f", on nodes with {in_words(request.features)}" if request.features else ""
    apart = ", on nodes of their own" if request.own_nodes else ""
    return (
        f"{replicas} replicas of {request.accelerators} "
        f"{pool.accelerator}, {request.cpus_milli / 1000:g} cpus and "
        f"{request.memory_bytes / 2**30:g} GiB each{where}{apart}"
    )
