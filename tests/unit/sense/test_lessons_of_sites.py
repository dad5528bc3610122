"""Lessons about sites that a simulated site cannot show: nodes out of service, local retries.

The conformance suite plays both against real schedulers (cases `requeue`, `node_death`).
"""

from __future__ import annotations

import json

import pytest

from broker.lifecycle import events as ev
from broker.lifecycle.handlers import Rejected
from broker.lifecycle.invariants import check
from broker.lifecycle.machine import step
from broker.model.jobs import Job, JobPhase, OutcomeKind, Terms
from federation.refusals import Refusal
from regional_agent.session.ledger import Ledger, Pool, Request, Reservation
from regional_agent.session.resettle import NodeSeen, SiteSeen, resettle
from regional_agent.slurm.nodes import parse_nodes
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt, ended

POOL = Pool("h100", "H100", nodes=3, accelerators_per_node=8, cpus_milli=64_000, memory_bytes=2**38)
CARD = Request("h100", replicas=1, accelerators=8)


def seen(*takes_jobs: bool) -> SiteSeen:
    return SiteSeen((POOL,), {"h100": tuple(NodeSeen(takes_jobs=yes) for yes in takes_jobs)})


def free_cards(site: SiteSeen, ledger: Ledger) -> int:
    """As a capacity report tells it."""
    groups = ledger.groups(POOL, site.unschedulable["h100"])
    return sum(group.count * group.free for group in groups)


def test_lesson_25_nodes_that_take_no_jobs_are_no_free_capacity() -> None:
    for up in range(4):
        site = seen(*(index < up for index in range(3)))
        assert free_cards(site, resettle(Ledger(site.pools), site)) == 8 * up


def test_lesson_25_nothing_new_is_put_on_a_drained_node() -> None:
    site = seen(False, True, False)
    ledger = resettle(Ledger(site.pools), site)
    taken = ledger.reserve("a-1", CARD)
    assert not isinstance(taken, Refusal)
    assert [place.node for place in taken[1].places] == [1]
    assert isinstance(taken[0].reserve("b-1", CARD), Refusal)


def test_lesson_25_what_runs_on_a_node_that_drains_stays_accounted() -> None:
    empty = seen(True, True, True)
    taken = resettle(Ledger(empty.pools), empty).reserve("a-1", CARD)
    assert not isinstance(taken, Refusal)
    ledger, held = taken
    assert isinstance(held, Reservation)
    node = held.places[0].node
    nodes = tuple(
        NodeSeen(8 if index == node else 0, takes_jobs=index != node) for index in range(3)
    )
    site = SiteSeen((POOL,), {"h100": nodes}, {"a-1": ((("h100", node),),)})
    after = resettle(ledger, site)
    assert [place.node for place in after.reservations["a-1"].places] == [node]
    assert free_cards(site, after) == 16


@pytest.mark.parametrize(
    ("state", "flags", "takes"),
    [
        ("idle", [], True),
        ("mixed", [], True),
        ("idle", ["DRAIN"], False),
        ("mixed", ["DRAIN"], False),
        ("down", [], False),
        ("idle", ["NOT_RESPONDING"], False),
        ("idle", ["MAINTENANCE"], False),
        ("idle", ["RESERVED"], False),
        ("something new", [], False),
    ],
)
def test_lesson_25_only_a_state_known_to_take_jobs_takes_jobs(
    state: str, flags: list[str], *, takes: bool
) -> None:
    said = {"name": "n1", "state": state, "state_flags": flags, "gres": "gpu:h100:8", "cpus": 64}
    (node,) = parse_nodes(json.dumps({"nodes": [said]}))
    assert node.takes_jobs is takes


def after(job: Job, *events: ev.Event) -> Job:
    for event in events:
        job = check(step(job, event, Terms(), 5_000).job)
    return job


def running() -> Job:
    job = a_job()
    return after(
        job,
        ev.AttemptPlaced(an_attempt(job)),
        ev.Accepted(f"{JOB}-1", 1, 3_000, 1),
        ev.Started(f"{JOB}-1", 2, 3_000, 1, "77"),
    )


def test_lesson_46_what_a_site_preempts_comes_back_as_an_attempt_of_ours() -> None:
    """The site's own retry is switched off and its copy does not run: there is one to try again."""
    job = after(running(), ended(f"{JOB}-1", 3, OutcomeKind.PREEMPTED))
    assert (job.phase, job.reason_code) == (JobPhase.QUEUED, "preempted")
    again = after(job, ev.AttemptPlaced(an_attempt(job, 2)))
    assert [(a.uid, a.live) for a in again.attempts] == [(f"{JOB}-1", False), (f"{JOB}-2", True)]


def test_lesson_46_while_an_attempt_is_not_known_to_have_ended_there_is_no_other() -> None:
    """A site that requeues by itself, silently, has not ended it: nothing else may start."""
    with pytest.raises(Rejected):
        step(running(), ev.AttemptPlaced(an_attempt(a_job(), 2)), Terms(), 5_000)


def test_lesson_46_a_second_start_told_of_one_attempt_changes_nothing() -> None:
    job = running()
    told = step(job, ev.Started(f"{JOB}-1", 3, 4_000, 1, "77"), Terms(), 5_000)
    assert told.ignored and told.job == job
