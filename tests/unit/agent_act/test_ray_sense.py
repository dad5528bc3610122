"""What a Ray cluster says, as a site: nodes that count, whose cards, who holds what."""

from __future__ import annotations

from typing import Any

import pytest

from regional_agent.act.schedulers.port import LaunchOrder
from regional_agent.act.schedulers.ray import _needs, _options
from regional_agent.ray.api import DIRECTORY, TAG, RayJob
from regional_agent.ray.site import RaySite
from regional_agent.sense.ray import RayLook, Said, put_together
from regional_agent.session.ledger import Place

GIB = 2**30


def node(name: str, state: str = "ALIVE", **resources: float) -> dict[str, Any]:
    total = {"CPU": 8.0, "memory": 64.0 * GIB} | resources
    return {"node_id": name, "state": state, "resources_total": total, "labels": {}}


def look(
    *nodes: dict[str, Any],
    used: dict[str, dict[str, tuple[float, float]]] | None = None,
    jobs: tuple[RayJob, ...] = (),
    places: dict[str, list[tuple[str, ...]]] | None = None,
    site: RaySite | None = None,
    ours: frozenset[str] = frozenset(),
) -> RayLook:
    reported: dict[str, dict[str, tuple[float, float]]] = {n["node_id"]: {} for n in nodes}
    said = Said(nodes, reported | (used or {}), jobs, places or {})
    return put_together(site or RaySite(accelerator="H100"), said, ours)


def test_nodes_alike_are_one_pool_and_dead_or_silent_ones_are_none() -> None:
    """Guards against counting the cards of nodes that take nothing."""
    dead, silent = node("c", "DEAD", GPU=8), node("d", GPU=8)
    said = Said([node("a", GPU=8), node("b", GPU=8), dead, silent], {"a": {}, "b": {}, "c": {}},
                (), {})  # fmt: skip
    (pool,) = put_together(RaySite(accelerator="H100"), said, frozenset()).seen.pools
    assert (pool.name, pool.accelerator, pool.nodes) == ("h100", "H100", 2)
    assert pool.accelerators_per_node == 8


def test_nodes_say_what_their_cards_are() -> None:
    typed = node("a", GPU=4) | {"resources_total": {
        "CPU": 8.0, "memory": 64.0 * GIB, "GPU": 4.0, "accelerator_type:A100": 1.0}}  # fmt: skip
    labelled = node("b", GPU=2) | {"labels": {"ray.io/accelerator-type": "L4"}}
    site = RaySite(types={"A100": "A100-80GB"})
    found = look(typed, labelled, node("c"), site=site).seen.pools
    assert {p.accelerator for p in found} == {"A100-80GB", "L4", "CPU"}
    models = look(typed, labelled, node("c"), site=site).models
    assert models == {"a100-80gb": "accelerator_type:A100", "l4": "", "cpu": ""}
    open_name = look(typed, labelled, node("c"), site=RaySite())
    assert "say A100-40GB or A100-80GB" in open_name.notes[0]


@pytest.mark.parametrize("named", ["", "Abacus-9"])
def test_cards_nobody_names_are_left_out_and_said(named: str) -> None:
    found = look(node("a", GPU=8), node("b"), site=RaySite(accelerator=named))
    assert [p.accelerator for p in found.seen.pools] == ["CPU"]
    assert "say ray.accelerator" in found.notes[0]


def test_what_is_used_is_seen_and_a_part_of_a_card_is_taken_whole() -> None:
    used = {"a": {"GPU": (1.5, 8.0), "CPU": (2.25, 8.0), "memory": (1.0 * GIB, 64.0 * GIB)}}
    (seen,) = look(node("a", GPU=8), used=used).seen.nodes["h100"]
    assert (seen.accelerators_used, seen.cpus_used_milli) == (2, 2250)
    assert seen.memory_used_bytes == GIB


def test_ours_are_told_from_the_jobs_of_others() -> None:
    tag = {TAG: "tradewind:j1-1:0", DIRECTORY: "/state/attempts/j1-1"}
    jobs = (
        RayJob("j1-1", "RUNNING", metadata=tag),
        RayJob("mine", "RUNNING"),
        RayJob("j9-1", "PENDING", metadata={TAG: "tradewind:j9-1:0"}),  # of another agent
    )
    seen = look(
        node("a", GPU=8), node("b", GPU=8), jobs=jobs, ours=frozenset({"j1-1"}),
        places={"j1-1": [("b", "b"), ("a", "gone")]},
    ).seen  # fmt: skip
    assert (seen.others_running, seen.others_waiting) == (1, 1)
    assert seen.running == {"j1-1": ((("h100", 1), ("h100", 1)),)}


def test_a_job_asks_for_the_model_it_was_planned_on() -> None:
    """Guards against other cards of the same cluster."""
    order = LaunchOrder(
        "j1-1", "j1", "t", argv=("true",), accelerator="A100-80GB", cpus_milli=2000,
        memory_bytes=GIB, places=(Place("a100-80gb", 0, (0, 1)),),
    )  # fmt: skip
    needs = _needs(order, {"a100-80gb": "accelerator_type:A100"})
    assert _options(needs) == {
        "num_cpus": 2.0, "num_gpus": 2, "memory": GIB,
        "resources": {"accelerator_type:A100": 0.001},
    }  # fmt: skip
    assert "resources" not in _options(_needs(order, {"a100-80gb": ""}))
