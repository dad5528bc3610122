"""What the keeper is asked to run, as it stands in `order.json` and on the socket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from federation.runs import Runs
from regional_agent.act.keeper.sandbox import Sandbox, sandbox_of

Pairs = list[list[int]]


class BadOrder(ValueError):
    """An order that lacks something or says it in the wrong form."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a process sits: pool, node index, card or slot indices."""

    pool: str
    node: int
    accelerators: tuple[int, ...]

    def to_json(self) -> list[Any]:
        """`[pool, node, [indices]]`."""
        return [self.pool, self.node, list(self.accelerators)]


@dataclass(frozen=True, slots=True)
class Order:
    """See `LaunchOrder` in `schedulers/port.py`; this is its form inside the keeper. `grouped`:
    each process gets a control group with its limits."""

    uid: str
    job: str
    tenant: str
    argv: tuple[str, ...]
    run: str
    env: tuple[tuple[str, str], ...]
    accelerator: str
    cpus_milli: int
    memory_bytes: int
    max_runtime_s: int
    grace_s: int
    replicas: int
    tasks: Runs | None
    width: int
    places: tuple[Seat, ...]
    fence_after_s: int = 0
    sandbox: Sandbox | None = None
    grouped: bool = False
    image: str = ""
    features: tuple[str, ...] = ()
    extras: tuple[tuple[str, int], ...] = ()
    keep: tuple[str, ...] = ()
    one_node: bool = False
    own_nodes: bool = False

    @property
    def wanted(self) -> Runs:
        """The tasks of the order; a job that is no array has the task 0."""
        return Runs(((0, 0),)) if self.tasks is None else self.tasks

    def task_label(self, task: int) -> int | None:
        """The index under which a task's logs are named; None if this is no array."""
        return None if self.tasks is None else task


def empty_order(uid: str) -> Order:
    """The order of an attempt that has none we know, and must never run."""
    return Order(uid, "", "", ("/bin/false",), "", (), "", 0, 0, 0, 0, 1, None, 1, ())


def runs_of(pairs: Pairs) -> Runs:
    """Runs from JSON. Raises BadOrder."""
    try:
        return Runs.of((int(first), int(last)) for first, last in pairs)
    except (TypeError, ValueError) as error:
        raise BadOrder(f"not runs of tasks: {error}") from error


def pairs_of(runs: Runs) -> Pairs:
    """Runs as JSON."""
    return [[first, last] for first, last in runs.runs]


def seats_of(places: list[Any]) -> tuple[Seat, ...]:
    """Places from JSON. Raises BadOrder."""
    try:
        return tuple(
            Seat(str(pool), int(node), tuple(int(card) for card in cards))
            for pool, node, cards in places
        )
    except (TypeError, ValueError) as error:
        raise BadOrder(f"not places: {error}") from error


def order_of(body: dict[str, Any]) -> Order:
    """An order from JSON. Raises BadOrder."""
    try:
        return Order(
            uid=str(body["uid"]),
            job=str(body["job"]),
            tenant=str(body["tenant"]),
            argv=tuple(str(word) for word in body["argv"]),
            run=str(body["run"]),
            env=tuple((str(name), str(value)) for name, value in body["env"]),
            accelerator=str(body["accelerator"]),
            cpus_milli=int(body["cpus_milli"]),
            memory_bytes=int(body["memory_bytes"]),
            max_runtime_s=int(body["max_runtime_s"]),
            grace_s=int(body["grace_s"]),
            replicas=int(body["replicas"]),
            tasks=None if body["tasks"] is None else runs_of(body["tasks"]),
            width=int(body["width"]),
            places=seats_of(body["places"]),
            fence_after_s=int(body.get("fence_after_s", 0)),
            sandbox=sandbox_of(body.get("sandbox")),
            grouped=bool(body.get("grouped")),
            image=str(body.get("image", "")),
            features=tuple(str(wish) for wish in body.get("features", ())),
            extras=tuple((str(name), int(each)) for name, each in body.get("extras", ())),
            keep=tuple(map(str, body.get("keep", ()))),
            one_node=bool(body.get("one_node")),
            own_nodes=bool(body.get("own_nodes")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadOrder(f"not an order: {error!r}") from error


def order_json(order: Order) -> dict[str, Any]:
    """An order as JSON; `order_of` reads it back."""
    return {
        "uid": order.uid,
        "job": order.job,
        "tenant": order.tenant,
        "argv": list(order.argv),
        "run": order.run,
        "env": [[name, value] for name, value in order.env],
        "accelerator": order.accelerator,
        "cpus_milli": order.cpus_milli,
        "memory_bytes": order.memory_bytes,
        "max_runtime_s": order.max_runtime_s,
        "grace_s": order.grace_s,
        "replicas": order.replicas,
        "tasks": None if order.tasks is None else pairs_of(order.tasks),
        "width": order.width,
        "places": [seat.to_json() for seat in order.places],
        "fence_after_s": order.fence_after_s,
        "sandbox": None if order.sandbox is None else order.sandbox.to_json(),
        "grouped": order.grouped,
        "image": order.image,
        "features": list(order.features),
        "extras": [[name, each] for name, each in order.extras],
        "keep": list(order.keep),
        "one_node": order.one_node,
        "own_nodes": order.own_nodes,
    }
