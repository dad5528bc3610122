"""`placement.anti_affinity`: jobs of a tenant that share no cluster, whoever comes first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.control.affinity import Neighbour, kept_apart
from broker.control.waitlist import alike
from broker.model.jobs import JobPhase
from broker.model.policies import Ruling
from federation.jobs import parse_job_spec
from federation.refusals import RefusalCode
from tests.unit.control.federation import Federation, Site, until
from tests.unit.control.test_control import phase, submit
from tests.unit.lifecycle.builders import a_job

LOUD = {"labels": {"team": "loud", "run": "7"}}
QUIET: dict[str, Any] = {"placement": {"anti_affinity": {"team": "loud"}}}


@pytest.fixture
async def sites(tmp_path: Path) -> AsyncIterator[Federation]:
    made = await Federation.make(
        tmp_path, Site("us-east", 4, price_usd=0.05), Site("eu-west", 8, price_usd=0.09)
    )
    await made.start()
    for site in made.sites.sites.values():
        site.hold = True
    yield made
    await made.kill()
    await made.sites.close()


def place(fed: Federation, job: str) -> str:
    found = fed.plane.services.projection.job(job) if fed.plane else None
    live = found.live_attempts if found and found.phase is JobPhase.RUNNING else ()
    return str(live[0].cluster) if live else ""


def reason(fed: Federation, job: str) -> str:
    found = fed.plane.services.projection.job(job) if fed.plane else None
    return found.reason_code if found else ""


async def test_who_avoids_a_label_goes_where_nobody_has_it(sites: Federation) -> None:
    (loud,) = await submit(sites, **LOUD)
    await until(lambda: place(sites, loud) == "us-east")
    (quiet,) = await submit(sites, **QUIET)
    await until(lambda: place(sites, quiet) == "eu-west")
    # And the other way round: who has the label keeps away from who avoids it.
    more = await submit(sites, 3, **LOUD)
    await until(lambda: {place(sites, job) for job in more} == {"us-east"})
    (late,) = await submit(sites, placement={"clusters": ["eu-west"]}, **LOUD)
    await until(lambda: reason(sites, late) == RefusalCode.KEPT_APART)
    (other,) = await submit(sites, labels={"team": "calm"})
    await until(lambda: place(sites, other) == "eu-west")


@pytest.mark.parametrize("first", ["loud", "quiet"])
async def test_those_that_come_together_are_kept_apart_too(sites: Federation, first: str) -> None:
    kinds = {"loud": LOUD, "quiet": QUIET}
    (one,) = await submit(sites, **kinds.pop(first))
    (other,) = await submit(sites, **kinds.popitem()[1])
    await until(lambda: {place(sites, one), place(sites, other)} == {"us-east", "eu-west"})


async def test_it_waits_for_the_other_to_end_where_there_is_no_other_place(
    sites: Federation,
) -> None:
    only = {"placement": {"clusters": ["us-east"], **QUIET["placement"]}}
    (loud,) = await submit(sites, **LOUD)
    await until(lambda: place(sites, loud) == "us-east")
    (quiet,) = await submit(sites, **only)
    await until(lambda: reason(sites, quiet) == RefusalCode.KEPT_APART)
    sites.sites.sites["us-east"].hold = False
    await until(lambda: phase(sites, quiet) is JobPhase.ENDED)
    assert sites.plane is not None
    of = {job: sites.plane.services.projection.job(job) for job in (loud, quiet)}
    before, after = of[loud], of[quiet]
    assert before is not None and after is not None
    assert before.ended_ms <= after.attempts[-1].placed_ms


def test_jobs_of_another_tenant_are_no_neighbours() -> None:
    quiet = Neighbour("j1", "lab", {}, {"team": "loud"})
    loud = Neighbour("j2", "lab", {"team": "loud", "run": "7"}, {})
    told = kept_apart(quiet, "eu", [loud])
    assert told is not None and "j2 with team=loud" in told.text
    back = kept_apart(loud, "eu", [quiet])
    assert back is not None and "j1, which avoids team=loud" in back.text
    elsewhere = Neighbour("j2", "other", {"team": "loud"}, {})
    assert kept_apart(quiet, "eu", [elsewhere]) is kept_apart(elsewhere, "eu", [quiet]) is None
    assert kept_apart(quiet, "eu", [Neighbour("j3", "lab", {"team": "calm"}, {})]) is None
    assert kept_apart(quiet, "eu", [Neighbour("j1", "lab", {"team": "loud"}, {})]) is None


def test_labels_make_classes_only_where_somebody_avoids_them() -> None:
    def key(watched: frozenset[str], run: str, team: str) -> object:
        labels = {"run": run, "team": team}
        spec = parse_job_spec({"run": "x", "tenant": "default", "labels": labels})
        return alike(a_job(), Ruling(spec), watched)

    nobody: frozenset[str] = frozenset()
    assert key(nobody, "1", "a") == key(nobody, "2", "b")
    team = frozenset({"team"})
    assert key(team, "1", "a") == key(team, "2", "a") != key(team, "2", "b")
