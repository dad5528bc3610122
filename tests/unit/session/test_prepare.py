"""Preparing for a job that waits: a ticket that fetches and launches nothing."""

from dataclasses import replace

from federation.ids import prepare_uid
from regional_agent.session import actions as act
from regional_agent.session.commands import Prepare
from tests.unit.session.site_world import SiteWorld, dispatch

JOB = "j0000000000000001"
SHA, ARCHIVE = "a" * 64, "b" * 64
SPEC = {
    "run": "true",
    "files": [{"path": "data", "sha256": SHA, "bytes": 20}],
    "workdir": {"archive": ARCHIVE, "bytes": 7},
}


def prepare(**in_ticket) -> Prepare:
    made = dispatch(prepare_uid(JOB), spec=SPEC, in_ticket=in_ticket)
    return Prepare(made.uid, made.ticket, made.spec)


def site() -> SiteWorld:
    world = SiteWorld()
    world.welcome()
    return world


def test_it_fetches_what_the_spec_of_the_ticket_names_and_holds_nothing() -> None:
    world = site()
    before = world.talk.instant()
    asked = prepare()
    effects = world.send(asked)
    assert effects == [act.Warm(JOB, asked.ticket, ((SHA, 20), (ARCHIVE, 7)))]
    assert world.talk.instant() == before
    assert not world.disk.rows and not world.told


def test_another_spec_than_the_tickets_is_not_looked_at() -> None:
    other = replace(prepare(), spec=prepare().spec.replace(SHA.encode(), b"c" * 64))
    (said,) = site().send(other)
    assert isinstance(said, act.Complain)


def test_a_ticket_for_an_attempt_prepares_nothing() -> None:
    made = dispatch(f"{JOB}-1", spec=SPEC)
    (said,) = site().send(Prepare(made.uid, made.ticket, made.spec))
    assert isinstance(said, act.Complain) and "not one to prepare" in said.text


def test_a_ticket_to_prepare_launches_nothing_and_leaves_no_trace() -> None:
    world = site()
    (said,) = world.send(dispatch(prepare_uid(JOB), spec=SPEC))
    assert isinstance(said, act.Complain) and "launches nothing" in said.text
    assert not world.disk.rows and not world.told and not world.talk.instant().ledger.reservations


def test_old_leaders_other_clusters_and_old_tickets_prepare_nothing() -> None:
    for wrong in ({"epoch": 0}, {"cluster": "us"}, {"not_after_ms": 1}):
        (said,) = site().send(prepare(**wrong))
        assert isinstance(said, act.Complain), wrong


def test_a_site_that_takes_nothing_new_prepares_nothing() -> None:
    world = site()
    world.talk.set_state("draining")
    (said,) = world.send(prepare())
    assert isinstance(said, act.Complain)


def test_the_job_itself_runs_as_if_nothing_had_been_prepared() -> None:
    world = site()
    world.send(prepare())
    world.effects.clear()
    world.send(dispatch(f"{JOB}-1", spec=SPEC))
    world.run_effects()
    assert world.kinds(f"{JOB}-1") == ["Accepted", "Prepared"]


def test_the_image_of_a_registry_goes_ahead_where_images_run() -> None:
    made = dispatch(prepare_uid(JOB), spec={"run": "true", "image": "docker://train:1"})
    asked = Prepare(made.uid, made.ticket, made.spec)
    assert site().send(asked) == [], "a site that runs none"
    able = site()
    able.talk.set_features(frozenset({"images"}))
    assert able.send(asked) == [act.Warm(JOB, asked.ticket, (), "docker://train:1")]
    made = dispatch(prepare_uid(JOB), spec={"run": "true", "image": "docker-archive:/srv/x.tar"})
    assert able.send(Prepare(made.uid, made.ticket, made.spec)) == []
