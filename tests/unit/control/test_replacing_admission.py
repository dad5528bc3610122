"""Which jobs may ask to be replaced: only where a site can be relied on to stop them."""

from __future__ import annotations

import pytest

from broker.control.admission_rules import replace_faults, unsupported
from broker.control.build_problem import Waiting, World, build
from broker.model.fleet import ClusterIdentity, ClusterState, ClusterView, Fleet
from federation.ids import Cluster, Region
from federation.jobs import JobSpec, parse_job_spec
from tests.unit.lifecycle.builders import a_job


def spec(**rest: object) -> JobSpec:
    wish = {"replace": True, "lost_after": "10m"}
    return parse_job_spec({"run": "true", "on_disconnect": wish, **rest})


def cluster(name: str, *capabilities: str, **rest: object) -> ClusterIdentity:
    usual: dict[str, object] = {"instance": "i", "scheduler": "slurm"}
    return ClusterIdentity(
        Cluster(name), Region(f"r-{name}"), ClusterState.JOINED, capabilities=capabilities,
        **{**usual, **rest},  # type: ignore[arg-type]
    )  # fmt: skip


def faults(asked: JobSpec, *clusters: ClusterIdentity) -> list[str]:
    known = {str(each.name): each for each in clusters}
    return [str(fault.path) for fault in replace_faults(asked, lambda: known)]


FENCED, PLAIN = cluster("a", "fence"), cluster("b", "array")
REPLACE = ["on_disconnect.replace"]


def test_one_site_with_a_fence_is_enough() -> None:
    assert faults(spec(), FENCED, PLAIN) == []


def test_refused_where_none_of_the_sites_has_one() -> None:
    assert faults(spec(), PLAIN) == REPLACE


@pytest.mark.parametrize(
    "placement",
    [{"clusters": ["b"]}, {"regions": ["r-b"]}, {"avoid": ["a"]}, {"avoid": ["r-a"]}],
)
def test_only_the_sites_it_may_run_at_count(placement: dict[str, object]) -> None:
    assert faults(spec(placement=placement), FENCED, PLAIN) == REPLACE


def test_a_site_that_has_never_spoken_may_have_one() -> None:
    assert faults(spec(), PLAIN, cluster("c", instance="")) == []
    assert faults(spec()) == []


def test_a_removed_site_does_not_count() -> None:
    gone = ClusterIdentity(Cluster("a"), Region("r"), ClusterState.REMOVED, instance="i",
                           capabilities=("fence",))  # fmt: skip
    assert faults(spec(), gone, PLAIN) == REPLACE


def test_a_site_is_not_lost_for_a_few_late_heartbeats() -> None:
    hasty = parse_job_spec({"run": "x", "on_disconnect": {"replace": True, "lost_after": "59s"}})
    assert faults(hasty, FENCED) == ["on_disconnect.lost_after"]


def test_without_the_wish_nothing_is_looked_at() -> None:
    plain = parse_job_spec({"run": "x", "on_disconnect": {"lost_after": "1s"}})
    assert faults(plain, PLAIN) == []


def test_an_array_may_ask_for_it_too() -> None:
    assert not unsupported(spec(array="0-9")) and faults(spec(array="0-9"), FENCED) == []


def test_a_site_without_a_fence_is_closed_to_it_and_says_why() -> None:
    views = {each.name: ClusterView(each) for each in (FENCED, PLAIN)}
    world = World(Fleet(views), {}, {}, 1_000)
    asked, plain = spec(), parse_job_spec({"run": "true"})
    jobs = [Waiting(a_job(), asked, 1), Waiting(a_job(id="j1123456789abcdef"), plain, 1)]
    closed, free = (job.excluded for job in build(world, jobs).jobs)
    assert {name: refusal.code for name, refusal in closed.items()} == {"b": "no_fence"}
    assert "on_disconnect.replace" in closed["b"].advice
    assert free == {}
