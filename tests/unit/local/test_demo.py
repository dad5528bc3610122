"""The demonstration's pure parts: workload, proof, findings, and the file of settings."""

from __future__ import annotations

from typing import Any

import pytest

from broker.local.demo.findings import comparison, delays, paid_usd, replay_jobs, utilisation
from broker.local.demo.proof import prove
from broker.local.demo.workload import ARRAY, ARRAY_TASKS, IMPOSSIBLE, URGENT, Planned, workload
from broker.local.inventory import RTT_MS, SITES, UnknownRegion, sites
from broker.local.layout import Home
from broker.local.ports import Ports
from broker.local.settings_files import agent_settings, broker_settings
from broker.local.status_line import status_line
from broker.settings import BrokerSettings
from federation.jobs import JobFile

PORTS = Ports(1, 2, 3, 4, {"us-east": 5, "eu-west": 6, "ap-southeast": 7})


def at(second: float) -> str:
    return f"2026-11-30T10:00:{second:06.3f}Z"


def attempt(**more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "uid": "j1-1", "cluster": "eu-west", "pool": "a100", "accelerators": 8,
        "placed_at": at(1), "started_at": at(2), "ended_at": at(12), "handshake_ms": 0.5,
        "prepare_ms": 20.0, "launch_ms": 30.0, "price_usd_per_accelerator_hour": 7.2,
    }  # fmt: skip
    return values | more


def document(name: str, *attempts: dict[str, Any], **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": "j1", "name": name, "created_at": at(0), "priority": 100, "array": None,
        "started_at": attempts[0]["started_at"] if attempts else None,
        "ended_at": attempts[-1]["ended_at"] if attempts else None,
        "attempts": list(attempts),
    }  # fmt: skip
    return values | more


CLUSTERS = [
    {
        "name": "eu-west",
        "region": "eu-west",
        "pools": [
            {
                "pool": "a100", "accelerator": "A100-80GB", "simulated": True, "nodes": 2,
                "total": 16, "price_usd_per_accelerator_hour": 7.2, "price_kind": "on-demand",
            }
        ],
    }
]  # fmt: skip


# Workload -----------------------------------------------------------------------------------------


def test_the_workload_is_what_it_says() -> None:
    jobs = workload("/usr/bin/python3", "/tmp/starts")
    by_name = {job.name: job for job in jobs}
    assert len(by_name) == len(jobs), "names are unique"
    assert by_name[ARRAY].starts == ARRAY_TASKS == 200
    assert by_name[URGENT].late and by_name[URGENT].spec["priority"] > 100
    assert not by_name[IMPOSSIBLE].runs and by_name[IMPOSSIBLE].starts == 0
    assert any(job.spec.get("resources", {}).get("replicas") == 2 for job in jobs)
    assert any(job.spec.get("placement", {}).get("regions") for job in jobs)


@pytest.mark.parametrize("planned", workload("python3", "/tmp/starts"), ids=lambda job: job.name)
def test_every_job_of_it_is_a_job(planned: Planned) -> None:
    JobFile.model_validate(planned.spec)


def test_what_cannot_fit_fits_nowhere_and_all_else_fits_somewhere() -> None:
    pools = [pool for site in SITES.values() for pool in site.pools]
    for planned in workload("python3", "x"):
        asked = planned.spec.get("resources", {}).get("accelerators")
        if asked is None:
            continue
        alternatives = [asked] if isinstance(asked, str) else asked
        pairs = [text.split(":") for text in alternatives]
        fits = any(
            pool.accelerator == model and int(count) <= pool.per_node
            for model, count in pairs
            for pool in pools
        )
        assert fits is planned.runs, planned.name


# Proof --------------------------------------------------------------------------------------------


def test_once_each_is_a_proof() -> None:
    lines = ["ja-1  0", "ja-1  1", "jb-1 0 0", "jb-2 1 0"]
    proof = prove(lines, {"ja": 2, "jb": 2}, {})
    assert proof.holds and proof.starts == proof.expected == 4


def test_a_second_start_shows_even_in_another_attempt() -> None:
    proof = prove(["jb-1 7 0", "jb-2 7 0"], {"jb": 1}, {"jb": "sweep"})
    assert not proof.holds
    assert proof.twice == ("sweep: task 7 rank 0 started 2 times",)


def test_a_missing_start_shows() -> None:
    proof = prove([], {"ja": 2, "jc": 0}, {"ja": "train"})
    assert proof.missing == ("train: 0 of 2 started",)


# Findings -----------------------------------------------------------------------------------------


def test_utilisation_is_what_was_held_of_what_there_is() -> None:
    jobs = [document("a", attempt()), document("b", attempt(started_at=at(7), ended_at=at(12)))]
    (found,) = utilisation(jobs, CLUSTERS)
    assert found["held_accelerator_s"] == pytest.approx(8 * 10 + 8 * 5)
    assert found["span_s"] == pytest.approx(10)
    assert found["utilisation"] == pytest.approx(120 / 160)
    assert utilisation([], CLUSTERS) == []


def test_delays_are_those_of_the_attempts() -> None:
    jobs = [document("a", attempt()), document("b", attempt(started_at=at(4), handshake_ms=1.5))]
    (found,) = delays(jobs, [{**CLUSTERS[0], "handshake_ms": 0.6, "cold_handshake_ms": 9.0}])
    assert found["attempts"] == 2
    assert (found["kept_session_ms"], found["new_session_ms"]) == (0.6, 9.0)
    assert found["decision_to_start_max_ms"] == pytest.approx(3000)


def test_paid_is_cards_times_price_times_hours() -> None:
    assert paid_usd(document("a", attempt())) == pytest.approx(8 * 7.2 * 10 / 3600)
    assert paid_usd(document("never")) == 0


def test_the_rules_are_charged_for_the_same_seconds() -> None:
    planned = [
        Planned({"name": "a", "resources": {"accelerators": "A100-80GB:8"},
                 "labels": {"home": "eu-west"}}, 1),
        Planned({"name": "never"}, 0),
    ]  # fmt: skip
    jobs = [document("a", attempt()), document("never")]
    found = comparison(planned, jobs, CLUSTERS)
    for name in ("tradewind", "cheapest_price_first", "home_region_only"):
        assert found[name]["paid_usd"] == pytest.approx(8 * 7.2 * 10 / 3600), name
    assert found["tradewind"]["jobs_ran"] == 1
    assert found["tradewind"]["mean_wait_s"] == pytest.approx(2)
    assert found["cheapest_price_first"]["mean_wait_s"] == 0


def test_an_array_is_replayed_task_by_task() -> None:
    planned = [Planned({"name": "s", "resources": {"cpus": 1}}, 4)]
    slices = [attempt(accelerators=2, ended_at=at(6)), attempt(accelerators=2, ended_at=at(4))]
    (job,) = replay_jobs(planned, [document("s", *slices, array={"tasks": 4})])
    assert job.copies == 4 and job.models == ("CPU",)
    assert job.run_s == pytest.approx((2 * 4 + 2 * 2) / 4)


# Settings -----------------------------------------------------------------------------------------


def test_the_broker_takes_its_settings(tmp_path: Any) -> None:
    written = broker_settings(Home(tmp_path), PORTS, tuple(SITES))
    settings = BrokerSettings.model_validate(written)
    assert settings.typed_rtt_ms() == RTT_MS
    assert settings.keys_dir == tmp_path / "broker" / "keys"


def test_only_round_trips_between_the_regions_there_are(tmp_path: Any) -> None:
    written = broker_settings(Home(tmp_path), PORTS, ("us-east",))
    assert written["typed_rtt"] == []


def test_every_card_is_labelled_simulated_and_every_price_has_source_and_day() -> None:
    for site in SITES.values():
        written = agent_settings(site, tuple(SITES.values()), PORTS)
        assert all(pool["simulated"] is True for pool in written["inventory"])
        assert all(price["source"] and price["as_of"] for price in written["prices"])
        assert {t["region"] for t in written["latency_targets"]} == set(SITES) - {site.name}


def test_regions_are_those_there_are() -> None:
    assert [site.name for site in sites(("eu-west", "us-east", "eu-west"))] == [
        "eu-west", "us-east",
    ]  # fmt: skip
    with pytest.raises(UnknownRegion, match="no region 'mars' here; there are us-east"):
        sites(("us-east", "mars"))
    with pytest.raises(UnknownRegion, match="no region is named"):
        sites(())


def test_the_status_line() -> None:
    status = {
        "clusters": {"connected": 2, "silent": ["eu-west"]},
        "running": 3,
        "queued": 1,
        "oldest_wait": {"job": "j1", "reason": {"code": "x", "text": "no room"}},
    }
    assert status_line(status) == (
        "2 connected · 1 silent · 3 running · 1 queued · j1 waits: no room"
    )
    assert status_line({}) == "0 connected · 0 running · 0 queued"
