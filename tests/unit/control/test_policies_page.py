"""docs/policies.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from broker.control.policy_text import InvalidPolicy, read_policy

PAGE = (Path(__file__).parents[3] / "docs" / "policies.md").read_text(encoding="utf-8")


def test_the_example_is_a_policy_that_uses_every_limit() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    policy = read_policy(example)
    assert policy.match is not None and policy.spot is True
    assert all(getattr(policy.require, name) for name in policy.require.__slots__)
    assert all(getattr(policy.weights, name) for name in policy.weights.__slots__)
    assert policy.match.when and policy.mutate.labels and policy.mutate.env
    assert policy.tier and policy.spread and policy.spot_share and policy.failover and policy.defer


def test_the_tables_hold_every_key() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    known: set[str] = set()
    for text in ("zz: 1", "match: {zz: 1}", "require: {zz: 1}", "weights: {zz: 1}",
                 "mutate: {zz: 1}", "failover: {zz: 1}", "defer: {zz: 1}"):
        try:
            read_policy(f"name: a\n{text}")
        except InvalidPolicy as invalid:
            known |= set(invalid.faults[0].remedy.removeprefix("use one of ").split(", "))
    assert told == known
