"""The order of an attempt outlives its agent: whatever is submitted of it later, further tasks of
an array or all of it after a crash, is submitted as the first was."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from federation.runs import Runs
from regional_agent.act.schedulers.batch.attempt import order_body, order_from
from regional_agent.act.schedulers.port import LaunchOrder
from regional_agent.session.ledger import Place

NOT_WRITTEN = {"contact_s", "network", "queued"}
"""Of the moment it was handed over, or of the keeper alone."""
SAID: dict[str, Any] = {
    "uid": "j-1", "job": "j", "tenant": "t", "argv": ("true",), "env": (("A", "b"),),
    "accelerator": "H100", "cpus_milli": 1, "memory_bytes": 2, "max_runtime_s": 3, "grace_s": 4,
    "replicas": 2, "tasks": Runs.of([(0, 3)]), "width": 2, "places": (Place("p", 1, (0,)),) * 4,
    "fence_after_s": 5, "one_node": True, "own_nodes": True, "image": "docker://a",
    "features": ("ib",), "extras": (("matlab", 1),), "keep": ("out",),
}  # fmt: skip


def test_all_of_an_order_is_read_back() -> None:
    usual = {field.name: field.default for field in fields(LaunchOrder)}
    assert SAID.keys() == usual.keys() - NOT_WRITTEN - {"run"}, "a new field: is it written down?"
    assert all(SAID[name] != usual[name] for name in SAID), "each says what is not usual"
    order = LaunchOrder(**SAID)
    assert order_from(json.loads(json.dumps(order_body(order)))) == order


def test_an_order_that_an_older_agent_wrote_has_what_is_usual() -> None:
    body = order_body(LaunchOrder("j-1", "j", "t", run="true"))
    for name in ("image", "features", "extras", "keep", "one_node", "own_nodes"):
        del body[name]
    assert order_from(body) == LaunchOrder("j-1", "j", "t", run="true")
