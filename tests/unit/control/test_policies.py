"""Which policies govern a job, and what they make of it: the stricter side always wins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.control.policies import govern, not_the_newest, ruling_class
from broker.control.policy_text import read_policy
from broker.model.policies import ISOLATION_GRADES, Policies, PolicyVersion, RttLimit, Ruling
from federation.jobs import JobSpec, parse_job_spec


def policies(*sources: str, **older: str) -> Policies:
    """These policies in force at version 2; `older` are texts of version 1 by name."""
    current = {v.policy.name: v for v in (PolicyVersion(read_policy(s), 2) for s in sources)}

    def version(name: str, number: int) -> PolicyVersion | None:
        return PolicyVersion(read_policy(older[name]), 1) if number == 1 and name in older else None

    return Policies(current, version)


def job(**placement: Any) -> JobSpec:
    more = placement.pop("spec", {})
    return parse_job_spec(
        {"run": "true", "tenant": "physics", **more, "placement": placement}
    )


def ruled(source: str, **placement: Any) -> Ruling:
    return govern(job(policy="p", **placement), policies(source))


# Which ----------------------------------------------------------------------------------------


def test_without_policies_a_job_is_as_it_is() -> None:
    spec = job(regions=["eu-west"])
    assert govern(spec, Policies()) == Ruling(spec)


def test_of_those_that_match_the_highest_priority_governs_and_then_the_name() -> None:
    found = policies(
        "{name: low, priority: 1, match: {}}", "{name: b, priority: 5, match: {}}",
        "{name: a, priority: 5, match: {}}", "{name: other, priority: 9, match: {tenants: [x]}}",
        "{name: named-only, priority: 99}",
    )  # fmt: skip
    assert govern(job(), found).policies == ("a@2",)


@pytest.mark.parametrize(
    ("match", "spec", "fits"),
    [
        ("tenants: [physics]", {}, True),
        ("tenants: [clinic]", {}, False),
        ("kinds: [training]", {}, False),
        ("kinds: [training]", {"kind": "training"}, True),
        ("labels: {a: x}", {"labels": {"a": "x", "b": "y"}}, True),
        ("labels: {a: x, b: z}", {"labels": {"a": "x", "b": "y"}}, False),
        ("accelerators: [H100]", {"resources": {"accelerators": ["H100:2", "H200:2"]}}, True),
        ("accelerators: [H100]", {}, False),
        ("accelerators: [CPU]", {}, True),
        ("tenants: [physics], kinds: [training]", {}, False),
    ],
)
def test_every_condition_of_a_match_must_hold(
    match: str, spec: dict[str, Any], fits: bool
) -> None:
    found = govern(job(spec=spec), policies(f"{{name: p, match: {{{match}}}}}"))
    assert found.policies == (("p@2",) if fits else ())


def test_naming_a_policy_never_gets_a_job_past_one_that_matches_it() -> None:
    found = govern(
        job(policy="cheap"),
        policies(
            "{name: cheap, require: {max_price_usd_per_accelerator_hour: 1}}",
            "{name: eu, match: {}, require: {regions: [eu-west]}}",
        ),
    )
    assert found.policies == ("cheap@2", "eu@2")
    assert found.spec.placement.regions == ("eu-west",)
    assert found.spec.placement.max_price_micro_usd_per_accelerator_hour == 1_000_000
    assert found.origins == {
        "regions": "policy eu@2",
        "max_price_micro_usd_per_accelerator_hour": "policy cheap@2",
    }


def test_a_pinned_job_keeps_the_rules_it_was_pinned_to() -> None:
    found = policies(
        "{name: p, match: {}, require: {regions: [eu-west]}}",
        p="{name: p, match: {}, require: {regions: [us-east]}}",
    )
    pinned = govern(job(policy="p@1"), found)
    assert (pinned.policies, pinned.spec.placement.regions) == (("p@1",), ("us-east",))
    assert govern(job(policy="p"), found).spec.placement.regions == ("eu-west",)
    refused = not_the_newest(job(policy="p@1"), found)
    assert refused is not None and "version 2" in refused.problem
    assert not_the_newest(job(policy="p@2"), found) is None


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("pp", "did you mean p?"),
        ("p@7", "write p, or p@2"),
        ("clinical", "it is not for tenant physics"),
        ("Nonsense!", "known: clinical, p"),
    ],
)
def test_a_policy_that_cannot_be_named_is_refused(named: str, said: str) -> None:
    found = govern(
        job(policy=named), policies("name: p", "{name: clinical, match: {tenants: [clinic]}}")
    )
    (conflict,) = found.conflicts
    assert conflict.path == "placement.policy" and said in f"{conflict.problem} {conflict.remedy}"


def test_a_rule_nobody_can_read_holds_every_job_back() -> None:
    found = govern(job(), Policies(unreadable={"p": "line 3"}))
    assert "policy p cannot be read" in found.conflicts[0].problem


# What it makes of a job -----------------------------------------------------------------------


def test_regions_intersect_and_a_contradiction_names_both_sides() -> None:
    source = "{name: p, require: {regions: [eu-west, eu-north]}}"
    assert ruled(source).spec.placement.regions == ("eu-west", "eu-north")
    both = ruled(source, regions=["us-east", "eu-north"])
    assert both.spec.placement.regions == ("eu-north",) and not both.conflicts
    (conflict,) = ruled(source, regions=["us-east"]).conflicts
    assert conflict.problem == (
        "contradiction: the job allows us-east, policy p@2 allows eu-west or eu-north"
    )
    assert conflict.path == "placement.regions"
    (avoiding,) = ruled(source, avoid=["eu-west", "eu-north"]).conflicts
    assert "the job avoids eu-west, eu-north" in avoiding.problem


def test_clusters_in_other_regions_are_a_contradiction_where_their_home_is_known() -> None:
    source = "{name: p, require: {regions: [eu-west]}}"
    spec = job(policy="p", clusters=["alpha"])
    assert not govern(spec, policies(source)).conflicts
    assert not govern(spec, policies(source), {"alpha": "eu-west"}).conflicts
    (conflict,) = govern(spec, policies(source), {"alpha": "us-east"}).conflicts
    assert "the job names alpha (us-east), policy p@2 allows eu-west" in conflict.problem


def test_two_policies_may_contradict_each_other() -> None:
    found = govern(
        job(policy="us"),
        policies(
            "{name: us, require: {regions: [us-east]}}",
            "{name: eu, match: {}, require: {regions: [eu-west]}}",
        ),
    )
    assert "policy us@2 allows us-east, policy eu@2 allows eu-west" in found.conflicts[0].problem


@given(
    own=st.none() | st.integers(1, 9), policy=st.none() | st.integers(1, 9)
)
def test_of_two_limits_the_lower_holds(own: int | None, policy: int | None) -> None:
    keys = ("max_price_usd_per_accelerator_hour", "max_start_delay")
    mine = {keys[0]: own, keys[1]: f"{own}m"} if own else {}
    theirs = f"{keys[0]}: {policy}, {keys[1]}: {policy}m" if policy else ""
    place = ruled(f"{{name: p, require: {{{theirs}}}}}", **mine).spec.placement
    least = min((x for x in (own, policy) if x), default=None)
    assert place.max_price_micro_usd_per_accelerator_hour == (least and least * 1_000_000)
    assert place.max_start_delay_s == (least and least * 60)


@given(
    own=st.none() | st.sampled_from(ISOLATION_GRADES),
    policy=st.none() | st.sampled_from(ISOLATION_GRADES[:-1]),
)
def test_of_two_grades_the_stronger_holds(own: str | None, policy: str | None) -> None:
    spec = job(policy="p", spec={"resources": {"isolation": own} if own else {}})
    need = f"isolation: {policy}" if policy else ""
    found = govern(spec, policies(f"{{name: p, require: {{{need}}}}}"))
    grades = [g for g in (own, policy) if g]
    assert found.spec.resources.isolation == max(
        grades, key=ISOLATION_GRADES.index, default=None
    )


@pytest.mark.parametrize(
    ("own", "policy", "allowed"),
    [
        (None, "", None), (True, "", True), (None, "spot: yes", True), (None, "spot: no", False),
        (True, "spot: no", False), (False, "spot: yes", False), (True, "spot: yes", True),
    ],
)  # fmt: skip
def test_spot_takes_the_word_of_both(own: bool | None, policy: str, allowed: bool | None) -> None:
    asked = {} if own is None else {"spot": own}
    assert ruled(f"name: p\n{policy}", **asked).spec.placement.spot is allowed


def test_round_trips_to_one_target_merge_and_others_stand_beside() -> None:
    source = "{name: p, require: {max_rtt: {to: eu-west, ms: 40}}}"
    alone = ruled(source)
    assert alone.spec.placement.max_rtt is not None
    assert (alone.spec.placement.max_rtt.ms, alone.round_trips) == (40, ())
    same = ruled(source, max_rtt={"to": "eu-west", "ms": 20})
    assert same.spec.placement.max_rtt is not None and same.spec.placement.max_rtt.ms == 20
    other = ruled(source, max_rtt={"to": "us-east", "ms": 20})
    assert other.spec.placement.max_rtt is not None
    assert (other.spec.placement.max_rtt.to, other.round_trips) == (
        "us-east", (RttLimit("eu-west", 40.0),),
    )  # fmt: skip
    assert ruled(source, user_region="us-east").round_trips == (RttLimit("eu-west", 40.0),)


def test_weights_come_from_the_policy_and_the_named_one_first() -> None:
    found = govern(
        job(policy="named", spec={"value_of_time_usd_per_hour": 9}),
        policies(
            "{name: named, weights: {value_of_time_usd_per_hour: 2}}",
            "{name: m, match: {}, weights: {value_of_time_usd_per_hour: 5, latency_usd_per_ms: 1}}",
        ),
    )
    assert found.spec.value_of_time_micro_usd_per_hour == 2_000_000
    assert found.latency_usd_per_ms == 1.0
    free = ruled("{name: p, weights: {value_of_time_usd_per_hour: 0}}")
    assert free.spec.value_of_time_micro_usd_per_hour == 0


def test_the_class_of_a_job_is_that_of_its_rules() -> None:
    plain = ruling_class(ruled("name: p"), 60)
    sources = (
        "{name: p, require: {regions: [eu-west]}}",
        "{name: p, weights: {latency_usd_per_ms: 1}}",
        "{name: p, require: {isolation: per-user}}",
    )
    keys = {plain, *(ruling_class(ruled(source), 60) for source in sources)}
    assert len(keys) == 4
    far = ruled("{name: p, require: {max_rtt: {to: eu, ms: 4}}}", user_region="us")
    assert ruling_class(far, 60) != ruling_class(ruled("name: p", user_region="us"), 60)


def test_nothing_of_a_policy_is_written_into_the_job() -> None:
    spec = job(policy="p")
    before = spec.model_dump_json()
    govern(spec, policies("{name: p, require: {regions: [eu-west], isolation: per-user}}"))
    assert spec.model_dump_json() == before
