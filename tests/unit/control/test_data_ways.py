"""The speed of ways between regions: measured before stated before assumed, and who says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.control.build_problem import Waiting, World, build
from broker.control.candidate_table import candidate_rows
from broker.control.data_ways import RATE_AGE_MAX_MS, KnownBy, Speed, Ways
from broker.decide.decision import decide
from broker.model.data import Link
from broker.model.fleet import Cache, ClusterView, DataRate, Fleet
from broker.model.policies import Ruling
from federation.ids import Region
from tests.unit.control.test_inputs import EU, US, a_spec, at
from tests.unit.control.test_policy_problem import NOW_MS, cluster
from tests.unit.lifecycle.builders import JOB, a_job

WAY = ("eu-west", "us-east")
STATED = {WAY: Link(0.0, 1.0, "contract", 5)}
GBIT = 125_000_000
"""Bytes a second."""


def rate(gbps: float, *, at_least: bool = False, old_ms: int = 0) -> DataRate:
    of_bytes = round(gbps * GBIT) if gbps > 0 else -1
    return DataRate(Region("eu-west"), "h:443", of_bytes, at_least, 4, NOW_MS - old_ms)


def measuring(*rates: DataRate, view: ClusterView = US) -> ClusterView:
    return replace(view, data_rates=rates)


def speed(*views: ClusterView, gbps: float | None = 1.0) -> Speed:
    links = {} if gbps is None else {WAY: Link(0.0, gbps, "contract", 5)}
    return Ways(links, views, NOW_MS).speed(WAY)


# Which figure counts -----------------------------------------------------------------------------


def test_what_was_measured_counts_before_what_was_stated() -> None:
    for gbps in (0.2, 5.0):
        assert speed(measuring(rate(gbps))) == Speed(gbps, KnownBy.MEASURED, NOW_MS)
    assert speed(US) == Speed(1.0, KnownBy.STATED, 5)


def test_at_least_so_fast_does_not_contradict_a_faster_statement() -> None:
    assert speed(measuring(rate(0.2, at_least=True))) == Speed(1.0, KnownBy.STATED, 5)
    found = speed(measuring(rate(3.0, at_least=True)))
    assert found == Speed(3.0, KnownBy.MEASURED, NOW_MS, at_least=True)
    unstated = speed(measuring(rate(0.2, at_least=True)), gbps=0.0)
    assert unstated == Speed(0.2, KnownBy.MEASURED, NOW_MS, at_least=True)


@pytest.mark.parametrize("useless", [rate(-1), rate(0.2, old_ms=RATE_AGE_MAX_MS + 1)])
def test_a_failed_or_old_measurement_leaves_what_was_stated(useless: DataRate) -> None:
    assert speed(measuring(useless)).known_by is KnownBy.STATED
    assert speed(measuring(useless), gbps=0.0).known_by is KnownBy.UNKNOWN


def test_without_both_what_sites_fetch_at_stands_in() -> None:
    cached = replace(US, cache=Cache(NOW_MS, fetch_bytes_per_s=GBIT))
    assert speed(cached, gbps=0.0) == Speed(1.0, KnownBy.SEEN)
    assert speed(replace(cached, data_rates=(rate(0.5),)), gbps=0.0).known_by is KnownBy.MEASURED


def test_of_several_sites_and_sources_of_a_region_the_slowest_counts() -> None:
    other = replace(US, identity=replace(US.identity, name="us2"))
    views = measuring(rate(0.9), rate(0.7)), measuring(rate(0.4), rate(-1), view=other)
    assert speed(*views).gbps == speed(*reversed(views)).gbps == 0.4
    # What is at least 0.3 may be the stated 1.0: it does not make the 0.7 any slower.
    views = measuring(rate(0.7)), measuring(rate(0.3, at_least=True), view=other)
    assert speed(*views).gbps == speed(*reversed(views)).gbps == 0.7


def test_a_measurement_makes_no_way_where_nobody_stated_one() -> None:
    ways = Ways({}, [measuring(rate(5.0))], NOW_MS)
    assert ways.way(WAY) is None and ways.source(["eu-west"], "us-east") is None


# What it does to a decision ----------------------------------------------------------------------


def decided(*views: ClusterView, deadline: str = "11h30m") -> tuple[str, dict[str, Any]]:
    """Where a job with 450 GB (an hour at the stated 1 Gbit/s) goes, and its table by cluster."""
    spec = a_spec(at("450GB", "eu-west"), deadline=deadline)
    world = World(Fleet({v.identity.name: v for v in views}), {}, {}, NOW_MS, links=STATED)
    problem = build(world, [Waiting.under(Ruling(spec), a_job(created_ms=NOW_MS), 1)])
    plan = decide(problem)
    rows = candidate_rows(problem, JOB, plan, world, spec)
    (chosen,) = plan.assignments
    return chosen.pool.split("/")[0], {row["cluster"]: row for row in rows}


def test_a_measured_slow_way_sends_a_job_elsewhere_and_the_receipt_says_by_what() -> None:
    where, table = decided(EU, US)
    assert where == "us", "it is cheaper there, and the way takes an hour as stated"
    (way,) = table["us"]["transfer_ways"]
    assert (way["from_region"], way["known_by"], way["gbps"]) == ("eu-west", "stated", 1.0)
    where, table = decided(EU, measuring(rate(0.1)))
    assert where == "eu", "ten hours, with ten of running, are too many"
    (way,) = table["us"]["transfer_ways"]
    assert (way["known_by"], way["gbps"], way["at_least"]) == ("measured", 0.1, False)
    assert way["as_of_at"] is not None
    assert table["us"]["transfer_s"] == pytest.approx(36_000)
    assert table["eu"]["transfer_ways"] == [], "there it lies already"
    assert decided(EU, measuring(rate(0.1), view=US), deadline="30h")[0] == "us"


def test_a_job_without_inputs_has_no_ways() -> None:
    world = World(Fleet({"us": US}), {}, {}, NOW_MS, links=STATED)
    spec = a_spec()
    problem = build(world, [Waiting.under(Ruling(spec), a_job(created_ms=NOW_MS), 1)])
    (row,) = candidate_rows(problem, JOB, decide(problem), world, spec)
    assert "transfer_ways" not in row


@given(
    figures=st.lists(
        st.tuples(st.sampled_from([0.05, 0.5, 5.0]), st.booleans()), min_size=1, max_size=4
    ),
    stated=st.sampled_from([0.0, 0.3, 3.0]),
    faster=st.floats(1.0, 100.0),
)
def test_a_faster_measurement_never_makes_a_way_slower(
    figures: list[tuple[float, bool]], stated: float, faster: float
) -> None:
    def views(times: float) -> list[ClusterView]:
        return [
            measuring(
                rate(gbps * (times if number == 0 else 1.0), at_least=more),
                view=cluster(f"us{number}", "us-east", 1.0),
            )
            for number, (gbps, more) in enumerate(figures)
        ]

    before, after = speed(*views(1.0), gbps=stated), speed(*views(faster), gbps=stated)
    assert after.hours_per_gb <= before.hours_per_gb
