"""A policy's YAML: read whole, or refused with every fault at its line and column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.control.policy_text import SOURCE_BYTES_MAX, InvalidPolicy, read_policy
from broker.model.policies import Match, Policy, Require, RttLimit, Weights

WHOLE = """\
name: eu-only
description: Personal data stays in Europe.
priority: 50
match:
  tenants: [clinic]
  kinds: [batch, training]
  labels: {data: personal}
  accelerators: [A100, CPU]
require:
  regions: [eu-west, eu-north]
  max_price_usd_per_accelerator_hour: 2.5
  max_rtt: {to: eu-west, ms: 40}
  max_start_delay: 10m
  isolation: per-user
weights:
  value_of_time_usd_per_hour: 3
  latency_usd_per_ms: 0.01
spot: no
"""


def places(source: str) -> list[tuple[int, int, str]]:
    with pytest.raises(InvalidPolicy) as caught:
        read_policy(source)
    assert all(fault.problem and fault.remedy for fault in caught.value.faults)
    return [(fault.line, fault.column, fault.path) for fault in caught.value.faults]


def fault(source: str) -> str:
    with pytest.raises(InvalidPolicy) as caught:
        read_policy(source)
    return str(caught.value.faults[0])


def test_every_key_is_read() -> None:
    assert read_policy(WHOLE) == Policy(
        name="eu-only",
        description="Personal data stays in Europe.",
        priority=50,
        match=Match(
            ("clinic",), ("batch", "training"), {"data": "personal"},
            ("A100-40GB", "A100-80GB", "CPU"),
        ),
        require=Require(
            ("eu-west", "eu-north"), 2_500_000, RttLimit("eu-west", 40.0), 600, "per-user"
        ),
        weights=Weights(3_000_000, 10_000),
        spot=False,
    )  # fmt: skip


def test_a_name_alone_is_a_policy_that_governs_only_who_names_it() -> None:
    assert read_policy("name: plain") == Policy("plain")
    assert read_policy("name: all\nmatch: {}").match == Match()


def test_every_fault_is_told_at_its_place() -> None:
    source = """\
name: EU
priorty: 3
require:
  regions: us-east
  max_price_usd_per_accelerator_hour: "2"
  max_rtt: {to: eu-west}
  regons: []
spot: maybe
spot: no
"""
    assert places(source) == [
        (1, 7, "name"), (2, 1, "priorty"), (4, 12, "require.regions"),
        (5, 39, "require.max_price_usd_per_accelerator_hour"), (6, 12, "require.max_rtt"),
        (7, 3, "require.regons"), (8, 7, "spot"), (9, 1, "spot"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("priorty: 3", "did you mean `priority`?"),
        ("match: all", "write match: {} to match every job"),
        ("require: {isolation: hard}", "no kind of site of this version"),
        ("require: {isolation: sandbox}", "did you mean `sandboxed`?"),
        ("require: {max_start_delay: 10}", "write 10s, 10m or 10h"),
        ("require: {regions: []}", "leave the key out for all"),
        ("require: {max_rtt: {to: eu, ms: 0}}", "outside 0 to 10000"),
        ("weights: {latency_usd_per_ms: 1:30}", "not a plain number"),
        ("weights: {latency_usd_per_ms: -1}", "outside 0 to"),
        ("weights: {latency_usd_per_ms: .nan}", "not a plain number"),
        ("match: {accelerators: [H1000]}", "did you mean"),
        ("match: {labels: {team: 1}}", 'write it in quotes: "1"'),
        ("match: {tenants: [a, a]}", "stands twice"),
        ("spread: region", "write a share such as 50%"),
        ("priority: 0x10", "not a whole number"),
    ],
)
def test_a_fault_says_what_would_be_right(line: str, said: str) -> None:
    told = fault(f"name: a\n{line}")
    assert told.startswith("line 2, column ") and said in told


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [
        ("name: a\nrequire: [", 2, 11),
        ("name: &a x\ndescription: *a", 2, 14),
        ("name: a\x07", 1, 8),
        ("name: a\n--- \nname: b", 2, 1),
        ("", 1, 1),
        ("- name", 1, 1),
        ("[" * 20_000, 1, 1),
        ("x" * (SOURCE_BYTES_MAX + 1), 1, 1),
    ],
)
def test_what_is_not_yaml_is_told_at_its_place(source: str, line: int, column: int) -> None:
    assert places(source)[0][:2] == (line, column)


@given(st.text(max_size=300))
def test_no_text_does_anything_but_be_read_or_be_refused(source: str) -> None:
    try:
        read_policy("name: a\n" + source)
    except InvalidPolicy as invalid:
        assert invalid.faults
