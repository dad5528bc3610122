"""`inputs`: where data lies decides where a job goes; what the way costs is part of its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.control.admission_rules import input_faults
from broker.control.build_problem import Waiting, World, build
from broker.control.data_ways import Ways
from broker.control.inputs import Inputs
from broker.decide.decision import decide
from broker.decide.explain import Standing, candidates, explain_unplaced
from broker.decide.problem_file import problem_from_json
from broker.decide.problem_json import problem_to_json
from broker.model.data import Dataset, Link
from broker.model.fleet import Cache, Fleet
from broker.model.plan import Plan
from broker.model.policies import Ruling
from broker.model.problem import Problem
from federation.ids import Region
from federation.jobs import JobSpec, parse_job_spec
from federation.refusals import RefusalCode
from tests.unit.control.test_policy_problem import NOW_MS, cluster
from tests.unit.lifecycle.builders import JOB, a_job

EU = cluster("eu", "eu-west", 0.09)
US = cluster("us", "us-east", 0.05)
ASIA = cluster("asia", "asia", 0.01)
LINKS = {
    ("eu-west", "us-east"): Link(0.02, 1.0),
    ("us-east", "eu-west"): Link(0.09, 1.0),
    ("us-east", "asia"): Link(0.05, 10.0),
}


def a_spec(*inputs: dict[str, Any], **more: Any) -> JobSpec:
    return parse_job_spec(
        {"run": "x", "tenant": "default", "max_runtime": "10h", "inputs": list(inputs), **more}
    )


def at(size: str, *regions: str) -> dict[str, Any]:
    return {"uri": f"s3://b/{size}", "size": size, "regions": list(regions)}


def decided(spec: JobSpec, world: Any = None, **about: Any) -> tuple[Problem, Plan]:
    fleet = Fleet({view.identity.name: view for view in world or (EU, US, ASIA)})
    about = {"links": LINKS, **about}
    problem = build(
        World(fleet, {}, {}, NOW_MS, **about),
        [Waiting.under(Ruling(spec), a_job(created_ms=NOW_MS), 1)],
    )
    return problem, decide(problem)


def where(plan: Plan) -> list[str]:
    return [item.pool.split("/")[0] for item in plan.assignments]


def test_without_inputs_the_cheapest_site_runs_it_and_the_problem_has_no_ways() -> None:
    problem, plan = decided(a_spec())
    assert where(plan) == ["asia"]
    assert problem.egress_usd_per_gb == problem.bandwidth_gbps == ()


def test_data_goes_as_far_as_its_way_is_paid_by_a_cheaper_site() -> None:
    # 10 hours at 0.09 or 0.05 USD: the way may cost 0.40.
    assert where(decided(a_spec(at("10GB", "eu-west")))[1]) == ["us"]
    problem, plan = decided(a_spec(at("30GB", "eu-west")))
    assert where(plan) == ["eu"]
    row = next(r for r in candidates(problem, problem.jobs[0], plan) if r.cluster == "us")
    assert row.terms is not None and row.terms.egress_usd == pytest.approx(30 * 0.02)


def test_lesson_24_a_way_that_nobody_stated_is_refused_and_says_so() -> None:
    """Peers streamed data from another region unnoticed."""
    problem, plan = decided(a_spec(at("1GB", "eu-west")), world=(ASIA,))
    assert plan.assignments == ()
    (reason,) = explain_unplaced(problem, plan, JOB).reasons
    assert reason.standing is Standing.DATA
    assert reason.refusals[0].code is RefusalCode.DATA_MISSING
    assert "it in eu-west, and no link from there is stated" in reason.refusals[0].text
    assert where(decided(a_spec(at("1GB", "eu-west", "us-east")), world=(ASIA,))[1]) == ["asia"]


def test_several_inputs_each_come_by_their_cheapest_way() -> None:
    spec = a_spec(at("10GB", "eu-west", "us-east"), at("30GB", "us-east"))
    problem, plan = decided(spec)
    assert where(plan) == ["us"]
    table = {row.cluster: row for row in candidates(problem, problem.jobs[0], plan)}
    costs = {name: row.terms.egress_usd for name, row in table.items() if row.terms}
    assert costs["us"] == pytest.approx(0.0, abs=1e-12)
    assert costs["eu"] == pytest.approx(30 * 0.09)
    assert costs["asia"] == pytest.approx(40 * 0.05)
    again = problem_from_json(problem_to_json(problem))
    assert decide(again).assignments == plan.assignments, "a stored decision is decided alike"


def test_the_way_takes_time_and_a_deadline_counts_it() -> None:
    # 450 GB at 1 Gbit/s take an hour.
    spec = a_spec(at("450GB", "eu-west"), deadline="10h30m")
    problem, plan = decided(spec, world=(US,))
    (reason,) = explain_unplaced(problem, plan, JOB).reasons
    assert reason.refusals[0].code is RefusalCode.DEADLINE_TOO_SOON
    later = a_spec(at("450GB", "eu-west"), deadline="11h30m")
    problem, plan = decided(later, world=(US,))
    assert where(plan) == ["us"]
    (row,) = candidates(problem, problem.jobs[0], plan)
    assert row.start_s == pytest.approx(3600, rel=1e-3)


def test_where_no_speed_is_stated_what_the_site_was_seen_to_fetch_at_counts() -> None:
    slow = replace(US, cache=Cache(NOW_MS, fetch_bytes_per_s=12_500_000))
    links = {("eu-west", "us-east"): Link(0.0)}
    spec = a_spec(at("450GB", "eu-west"), deadline="11h30m")
    assert where(decided(spec, world=(US,), links=links)[1]) == ["us"], "nobody knows of a delay"
    assert where(decided(spec, world=(slow,), links=links)[1]) == [], "ten hours at 100 Mbit/s"


def test_a_dataset_is_known_by_name_and_may_be_bound_to_regions() -> None:
    held = {"faces": Dataset("faces", 10**9, ("eu-west",), ("eu-west", "eu-north"))}
    spec = a_spec({"dataset": "faces"})
    assert where(decided(spec, datasets=held)[1]) == ["eu"]
    north = replace(EU, identity=replace(EU.identity, name="north", region=Region("eu-north")))
    problem, plan = decided(spec, world=(US, north), datasets=held)
    reasons = {r.cluster: r.refusals[0] for r in explain_unplaced(problem, plan, JOB).reasons}
    assert reasons["us"].code is RefusalCode.DATA_RESIDENCY
    assert "faces may be read: eu-west, eu-north" in reasons["us"].text
    assert reasons["north"].code is RefusalCode.DATA_MISSING
    gone = explain_unplaced(*decided(spec, world=(EU,)), JOB).reasons[0].refusals[0]
    assert "it in no region" in gone.text


def test_what_nobody_knows_enough_of_is_not_taken_on() -> None:
    known = {"faces": Dataset("faces", 1, ("eu",))}
    spec = a_spec({"uri": "s3://b/x"}, {"dataset": "face"}, {"dataset": "faces", "size": "1GB"})
    faults = {fault.path: fault.remedy for fault in input_faults(spec, known)}
    assert faults == {
        "inputs[0].size": "write size: 1.5TiB",
        "inputs[0].regions": "write regions: [eu-west], those that have all of it",
        "inputs[1].dataset": "known: faces",
        "inputs[2].size": "leave it out",
    }
    assert input_faults(a_spec({"dataset": "faces"}, at("1GB", "eu")), known) == []


@given(
    links=st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.sampled_from("abc")),
        st.builds(Link, st.sampled_from([0.0, 0.02, 0.5]), st.sampled_from([0.0, 1.0, 10.0])),
    ),
    parts=st.lists(
        st.tuples(st.integers(1, 50), st.sets(st.sampled_from("abc"), min_size=1)),
        min_size=1, max_size=4,
    ),
)  # fmt: skip
def test_the_tables_say_of_every_region_what_the_parts_add_up_to(
    links: dict[tuple[str, str], Link], parts: list[tuple[int, set[str]]]
) -> None:
    views = [cluster(f"c{name}", name, 1.0) for name in "abc"]
    inputs = Inputs(Ways(links, views, NOW_MS), {}, "abc")
    spec = a_spec(*(at(f"{gb}GB", *sorted(regions)) for gb, regions in parts))
    place, total_gb = inputs.place(spec)
    egress, speed = inputs.tables()
    assert place is not None and total_gb == pytest.approx(sum(gb for gb, _ in parts))
    row = inputs.regions.index(place)
    for view in views:
        to = str(view.identity.region)
        usd = hours = 0.0
        refused = False
        for gb, regions in parts:
            ways = [(0.0, 0.0)] if to in regions else []
            for start in regions - {to}:
                if link := links.get((start, to)):
                    ways.append(
                        (link.egress_usd_per_gb, 8 / link.gbps / 3600 if link.gbps else 0.0)
                    )
            refused |= not ways
            way = min(ways, default=(0.0, 0.0))
            usd, hours = usd + gb * way[0], hours + gb * way[1]
        assert (inputs.refusal(spec, view) is not None) is refused
        if not refused:
            column = inputs.regions.index(to)
            gbps = speed[row][column]
            assert total_gb * egress[row][column] == pytest.approx(usd)
            assert (total_gb * 8 / gbps / 3600 if gbps else 0.0) == pytest.approx(hours)
