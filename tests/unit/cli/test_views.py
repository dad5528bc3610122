"""Tables as people see them (goldens), and that no odd JSON breaks them (property)."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cli import candidates, data_views, federation_views, job_views
from broker.cli.checks_broker import check_clock, check_clusters
from broker.cli.checks_here import judge_etcd
from broker.cli.formatting import (
    Now,
    age,
    milliseconds,
    moment,
    outcome,
    seconds,
    usd,
)
from broker.cli.output import Column, Table, render
from federation.units import parse_rfc3339_ms

NOW = Now(parse_rfc3339_ms("2026-11-30T13:10:00Z"), UTC)
RUNNING: dict[str, Any] = {
    "id": "j0k2m4n6p8q0r2s4", "name": "train-llm", "tenant": "team-a", "phase": "running",
    "outcome": None, "created_at": "2026-11-30T13:00:00.000Z",
    "started_at": "2026-11-30T13:00:04.250Z", "ended_at": None, "cost_usd": 3.456,
    "attempts": [{
        "uid": "j0k2m4n6p8q0r2s4-1", "cluster": "us-east-1", "region": "us-east", "pool": "h100",
        "phase": "running", "outcome": None, "placed_at": "2026-11-30T13:00:01.000Z",
        "started_at": "2026-11-30T13:00:04.250Z", "ended_at": None, "accelerator": "H100",
        "accelerators": 8, "cpus": 64.0, "memory_bytes": 1 << 39,
        "price_usd_per_accelerator_hour": 2.59, "price_source": "contract",
        "price_as_of_at": "2026-11-01T00:00:00.000Z", "expected_start_delay_s": 3.0,
        "expected_start_p90_s": 4.5,
        "measured_start": {"took_ms": 3200, "handshake_ms": 41, "prepare_ms": 812,
                           "launch_ms": 2347, "fetched_bytes": 20 << 20, "cached_bytes": 0},
        "handshake_ms": 41, "prepare_ms": 812, "launch_ms": 95, "nodes": ["n1", "n2"],
        "tasks": "", "width": 0, "outputs": [],
    }],
}  # fmt: skip
ARRAY: dict[str, Any] = {
    "id": "j0k2m4n6p8q0r2s3", "name": "sweep", "tenant": "team-b", "phase": "ended",
    "outcome": {"kind": "failed", "exit_code": 3, "signal": None, "code": "", "text": "2 of 200"},
    "created_at": "2026-11-29T20:00:00.000Z", "started_at": "2026-11-29T20:00:10.000Z",
    "ended_at": "2026-11-29T22:05:10.000Z", "cost_usd": 0.0042, "clusters": ["eu-west-1"],
    "array": {"tasks": 200, "succeeded": 190, "failed": 2, "cancelled": 8, "running": 0},
    "attempts": [],
}  # fmt: skip
WAITING: dict[str, Any] = {
    "id": "j0k2m4n6p8q0r2s2", "name": None, "tenant": "team-b", "phase": "queued",
    "reason": {"code": "no_capacity", "text": "fits when empty"}, "attempts": [],
    "created_at": "2026-11-30T13:09:30.000Z", "cost_usd": 0,
}  # fmt: skip


def golden(text: str) -> str:
    return text.lstrip("\n")


def test_the_table_of_jobs() -> None:
    table = job_views.job_table([RUNNING, ARRAY, WAITING], NOW)
    assert render(table, width=200) == golden("""
JOB               NAME       TENANT  STATE            WHERE      ACCELERATORS               TASKS  AGE    RAN     COST  WHY
j0k2m4n6p8q0r2s4  train-llm  team-a  running          us-east-1  8 x H100                       -  10m  9m56s    $3.46  -
j0k2m4n6p8q0r2s3  sweep      team-b  failed (exit 3)  eu-west-1  -             200/200 (2 failed)  17h  2h05m  $0.0042  2 of 200
j0k2m4n6p8q0r2s2  -          team-b  queued           -          -                              -  30s      -    $0.00  fits when empty
""")  # noqa: E501


def test_a_narrow_terminal_folds_text_but_never_ids() -> None:
    table = job_views.job_table([RUNNING, ARRAY, WAITING], NOW).without_blank_columns()
    text = render(table, width=90)
    for job in (RUNNING, ARRAY, WAITING):
        assert str(job["id"]) in text


def test_the_candidate_table() -> None:
    plan = {"candidates": [
        {"cluster": "eu-west-1", "pool": "a100", "accelerator": "A100-80GB", "feasible": False,
         "chosen": False, "start_delay_s": None, "rate_usd_per_hour": 12, "total_usd": None,
         "egress_usd": 4.5, "rtt_ms": 84.2,
         "why_not": {"code": "max_rtt", "text": "84 ms to us-east", "advice": "allow 90 ms"}},
        {"cluster": "ap-southeast-1", "pool": "h100", "accelerator": "H100", "feasible": True,
         "chosen": False, "start_delay_s": 95, "rate_usd_per_hour": 24.8, "total_usd": 1250.5,
         "egress_usd": 0, "rtt_ms": 220, "why_not": {"code": "not_chosen", "text": "costs more"}},
        {"cluster": "us-east-1", "pool": "h100", "accelerator": "H100", "feasible": True,
         "chosen": True, "start_delay_s": 3.2, "rate_usd_per_hour": 20.72, "total_usd": 1040,
         "egress_usd": 0, "rtt_ms": 0.4, "why_not": None},
    ]}  # fmt: skip
    assert render(candidates.candidate_table(plan), width=160) == golden("""
        CLUSTER         POOL  ACCELERATOR  START IN      RATE      TOTAL  EGRESS  ROUND TRIP  WHY NOT
CHOSEN  us-east-1       h100  H100             3.2s  $20.72/h  $1,040.00   $0.00      0.4 ms  -
        ap-southeast-1  h100  H100            1m35s  $24.80/h  $1,250.50   $0.00      220 ms  costs more
        eu-west-1       a100  A100-80GB           -  $12.00/h          -   $4.50       84 ms  84 ms to us-east; allow 90 ms
""")  # noqa: E501


def test_why_a_job_waits() -> None:
    waiting = [{"cluster": "us-east-1", "pool": "h100", "standing": "fits_when_empty",
                "code": "no_capacity", "text": "8 free, 16 needed", "advice": "ask for 8"}]
    assert render(candidates.waiting_table({"waiting": waiting}), width=120) == golden("""
CLUSTER    POOL  STANDING         WHAT BINDS
us-east-1  h100  fits when empty  8 free, 16 needed; ask for 8
""")


def test_what_else_an_explanation_says() -> None:
    explanation = {
        "candidates": [{"cluster": "us-east-1", "chosen": True,
                        "transfer_s": 3600.0, "transfer_ways": [
                            {"from_region": "asia", "gbps": 0.04, "known_by": "measured",
                             "as_of_at": "2026-11-30T12:45:00.000Z"},
                            {"from_region": "eu-west", "gbps": None, "known_by": "unknown"},
                        ],
                        "terms": {"compute_usd": 20.0, "cold_start_usd": 0.5, "egress_usd": 0}}],
        "smallest_change": {"text": "ask for 4 accelerators", "cluster": "eu-west-1",
                            "verified": True},
        "decision": {"cycle": "c42", "status": "optimal", "gap": 0.0, "cpu_s": 0.12,
                     "decided_at": "2026-11-30T13:09:48.000Z"},
        "others": {"accelerators_higher": 16, "accelerators_equal": 0, "accelerators_lower": 8},
    }  # fmt: skip
    assert candidates.explanation_lines(explanation, NOW) == [
        "Cost in us-east-1: compute $20.00, cold start $0.50.",
        "Inputs come from asia (0.04 Gbit/s, measured 25m ago), eu-west (unknown speed) in 1h00m.",
        "Smallest change that would start it: ask for 4 accelerators (in eu-west-1), "
        "tried by solving again.",
        "Decided 12s ago in cycle c42: optimal, no better plan exists, 120 ms of CPU time.",
        "Accelerators held by other jobs: 16 at higher, 0 at equal, 8 at lower priority.",
    ]


def test_starts_as_expected_and_as_they_were() -> None:
    start = {**RUNNING["attempts"][0], "attempt": "j1-1", "cluster": "eu"}
    (line,) = candidates.explanation_lines({"starts": [start]}, NOW)
    assert line.startswith("j1-1 in eu: start expected in 3000 ms, by 4500 ms in 9 of 10, took 3")
    unknown = {"attempt": "j1-1", "cluster": "eu", "expected_start_delay_s": 0.0}
    (line,) = candidates.explanation_lines({"starts": [unknown]}, NOW)
    assert line == "j1-1 in eu: nothing was known of starts there yet."
    (line,) = candidates.explanation_lines({"prepared_in": "eu"}, NOW)
    assert line == "Its files are being brought to eu, where it is expected to start."


def test_a_start_is_shown_as_the_middle_and_nine_of_ten() -> None:
    rows = [{"cluster": "eu", "start_delay_s": s, "start_delay_p90_s": p} for s, p in
            ((0.2, 1.4), (0.2, 0.21), (0.2, None))]  # fmt: skip
    shown = [row[4] for row in candidates.candidate_table({"candidates": rows}).rows]
    assert shown == ["0.2s-1.4s", "0.2s", "0.2s"]


def test_the_facts_and_attempts_of_a_job() -> None:
    facts = {name: value for name, value in job_views.job_facts(RUNNING, NOW) if value != "-"}
    assert facts["submitted"] == "13:00:00 (10m ago)"
    assert facts["ran"] == "9m56s"
    table = job_views.attempt_table(RUNNING, NOW).without_blank_columns()
    assert render(table, width=200) == golden("""
ATTEMPT             CLUSTER    POOL  TAKES                      STATE    PLACED    STARTED     RAN          RATE  HANDSHAKE  PREPARE  LAUNCH  NODES
j0k2m4n6p8q0r2s4-1  us-east-1  h100  8 x H100, 64 cpus, 512GiB  running  13:00:01  13:00:04  9m56s  $2.59/h each      41 ms   812 ms   95 ms  n1, n2
""")  # noqa: E501
    assert job_views.receipt_lines(RUNNING, NOW) == [
        "j0k2m4n6p8q0r2s4-1: price from contract as of 2026-11-01 00:00; "
        "start expected in 3000 ms, by 4500 ms in 9 of 10, took 3200 ms: handshake 41 ms, "
        "prepare 812 ms (20MiB fetched), launch 2347 ms"
    ]


def test_clusters_and_latency() -> None:
    clusters = [
        {"name": "us-east-1", "region": "us-east", "state": "active", "connected": True,
         "scheduler": "process", "capacity_age_s": 3.2, "handshake_ms": 12,
         "certificate_expires_at": "2026-12-01T13:00:00.000Z", "running": 4, "version": "0.1.0",
         "pools": [{"pool": "h100", "accelerator": "H100", "simulated": True, "total": 64,
                    "free": 12}]},
        {"name": "eu-west-1", "region": "eu-west", "state": "active", "connected": False,
         "silent_since_at": "2026-11-30T13:07:00.000Z",
         "certificate_expires_at": "2026-11-30T10:00:00.000Z"},
    ]  # fmt: skip
    assert render(federation_views.cluster_table(clusters, NOW), width=200) == golden("""
CLUSTER    REGION   STATE          SCHEDULER  ACCELERATORS FREE       RUNNING  LOCAL LOAD  REPORT  HANDSHAKE     CERTIFICATE  VERSION
us-east-1  us-east  active         process    12/64 H100 (simulated)        4  -           3s old      12 ms          in 23h  0.1.0
eu-west-1  eu-west  silent for 3m  -          -                             -  -                -          -  expired 3h ago  -
""")  # noqa: E501
    latency: dict[str, Any] = {"regions": ["us-east", "eu-west"], "round_trips": [
        {"from": "us-east", "to": "eu-west", "rtt_ms": 84.3, "source": "measured"},
        {"from": "eu-west", "to": "us-east", "rtt_ms": 85, "source": "typed"},
        {"from": "us-east", "to": "us-east", "rtt_ms": None, "source": "unknown"},
    ]}  # fmt: skip
    assert render(federation_views.latency_table(latency), width=80) == golden("""
FROM     US-EAST  EU-WEST
us-east        -    84 ms
eu-west  85 ms *        -
""")
    latency["data_rates"] = [
        {"from_region": "eu-west", "to_region": "us-east", "cluster": "us-east-1", "gbps": 0.0397,
         "at_least": False, "readings": 24, "age_s": 1500, "target": "data.example:443"},
        {"from_region": "asia", "to_region": "us-east", "cluster": "us-east-1", "gbps": 1.25,
         "at_least": True, "readings": 2, "age_s": 200_000, "target": "h:80", "flagged": "old"},
    ]  # fmt: skip
    assert render(data_views.data_rate_table(latency), width=120) == golden("""
DATA FROM  TO       CLUSTER             SPEED  READINGS  AGE  READ AT           NOT USED
eu-west    us-east  us-east-1   0.0397 Gbit/s        24  25m  data.example:443  -
asia       us-east  us-east-1  >= 1.25 Gbit/s         2   2d  h:80              old
""")
    levels = [(check.level, check.text) for check in check_clusters(clusters, NOW)]
    assert levels == [
        ("warn", "eu-west-1 is silent for 3m"), ("fail", "eu-west-1's expired 3h ago"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "$0.00"), (2.5, "$2.50"), (0.0042, "$0.0042"), (0.00001, "<$0.0001"),
     (-3, "-$3.00"), (1234567.891, "$1,234,567.89"), (None, "-"), ("2", "-"), (True, "-"),
     (float("nan"), "-"), (10**400, "-")],
)  # fmt: skip
def test_money(value: object, shown: str) -> None:
    assert usd(value) == shown


def test_times_are_in_the_users_zone() -> None:
    tokyo = Now(NOW.ms, timezone(timedelta(hours=9)))
    assert moment("2026-11-30T13:04:11.000Z", NOW) == "13:04:11"
    assert moment("2026-11-30T13:04:11.000Z", tokyo) == "22:04:11"
    assert moment("2026-11-29T22:04:11.000Z", NOW) == "2026-11-29 22:04"
    assert moment("yesterday", NOW) == "-"
    assert age("2026-11-30T13:09:48.000Z", NOW) == "12s"
    assert age("2026-11-30T13:20:00.000Z", NOW) == "in 10m"


def test_durations_and_ends() -> None:
    shown = [seconds(value) for value in (0, 0.43, 45, 250, 7500, 273_600, None, "x", -3)]
    assert shown == ["0s", "0.4s", "45s", "4m10s", "2h05m", "3d4h", "-", "-", "-3s"]
    assert [milliseconds(v) for v in (0.44, 84.2, 12_345)] == ["0.4 ms", "84 ms", "12.3 s"]
    assert outcome({"kind": "failed", "signal": 9}) == "failed (signal 9)"
    assert outcome({"kind": "out_of_memory"}) == "out of memory"
    assert outcome({"kind": "refused", "code": "site_limit"}) == "refused (site_limit)"


def test_etcd_is_judged_by_its_version() -> None:
    path = Path("/usr/bin/etcd")
    versions = ((3, 3, 27), (3, 4, 23), (3, 5, 0), (3, 5, 2), (3, 5, 3), (3, 6, 1))
    levels = [judge_etcd(version, path, "system").level for version in versions]
    assert levels == ["fail", "ok", "warn", "warn", "ok", "ok"]


def test_the_clock_is_compared() -> None:
    def level(date: str) -> str | None:
        check = check_clock(date, NOW)
        return check.level if check else None

    assert level("Mon, 30 Nov 2026 13:10:00 GMT") == "ok"
    assert level("Mon, 30 Nov 2026 13:11:00 GMT") == "warn"
    assert level("soon") is None


# Odd JSON -----------------------------------------------------------------------------------------

KEYS = sorted({
    *RUNNING, *RUNNING["attempts"][0], *ARRAY["array"], *ARRAY["outcome"], "candidates", "waiting",
    "why_not", "text", "code", "advice", "pools", "round_trips", "regions", "from", "to", "rtt_ms",
    "source", "cycle", "decision", "gap", "cpu_s", "others", "smallest_change", "spec", "resources",
    "labels", "silent_since_at", "certificate_expires_at", "capacity_age_s", "running", "leader",
    "oldest_wait", "age_s", "clusters", "silent", "connected", "chosen", "total_usd", "free",
    "as_of_at", "marginal_usd", "flagged", "job", "accelerators_higher", "reason", "prices",
})  # fmt: skip
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from(["2026-11-30T13:00:00.000Z", "0001-01-01T00:00:00Z", "ended", "unknown"])
)  # fmt: skip
ODD = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=25,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), ODD, max_size=12)


@settings(max_examples=150, deadline=None)
@given(OBJECTS)
def test_no_odd_json_breaks_a_view(odd: dict[str, Any]) -> None:
    tables = [
        job_views.job_table([odd], NOW), job_views.attempt_table({"attempts": [odd]}, NOW),
        job_views.attempt_table(odd, NOW), job_views.output_table([odd]),
        candidates.candidate_table(odd), candidates.candidate_table({"candidates": [odd]}),
        candidates.waiting_table({"waiting": [odd]}),
        federation_views.cluster_table([odd], NOW), federation_views.pool_table(odd, NOW),
        federation_views.price_table([odd], NOW), federation_views.latency_table(odd),
        federation_views.latency_table({"round_trips": [odd]}),
        data_views.data_rate_table({"data_rates": [odd]}), data_views.data_rate_table(odd),
        federation_views.plain_table([odd], NOW, "none"),
    ]  # fmt: skip
    for table in tables:
        for line in render(table, width=120).splitlines():
            assert line.isprintable()
    facts = [
        *job_views.job_facts(odd, NOW), *federation_views.status_facts(odd, NOW),
        *federation_views.cluster_facts(odd, NOW), *federation_views.facts_by_unit(odd, NOW),
    ]  # fmt: skip
    lines = [
        *job_views.receipt_lines({"attempts": [odd]}, NOW), job_views.end_line(odd, NOW),
        *candidates.explanation_lines(odd, NOW), *candidates.price_notes(odd, NOW),
        *federation_views.latency_notes(odd, NOW), *(value for _, value in facts),
    ]  # fmt: skip
    assert all(line.isprintable() for line in lines)
    check_clusters([odd], NOW)


def test_what_is_missing_is_a_dash() -> None:
    assert render(job_views.job_table([{}], NOW), width=200).splitlines()[1].split() == ["-"] * 11


def test_wide_characters_stay_aligned() -> None:
    table = Table((Column("name"), Column("n", right=True)), [["训练", "1"], ["abcd", "22"]])
    assert render(table, width=40) == "NAME   N\n训练   1\nabcd  22\n"


def test_colours_only_on_a_terminal_and_not_with_no_color() -> None:
    code = (
        "import pty, os, sys\n"
        "from broker.cli.output import Column, Table, render\n"
        "_, slave = pty.openpty()\n"
        "file = os.fdopen(slave, 'w')\n"
        "table = Table((Column('state', styled=True),), [['succeeded']])\n"
        "print(repr(render(table, file)))\n"
    )
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80",
                   "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}  # fmt: skip
    environment.pop("NO_COLOR", None)

    def printed(**more: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env=environment | more, timeout=60,
        ).stdout  # fmt: skip

    assert "[32m" in printed()
    assert "[32m" not in printed(NO_COLOR="1")


def test_when_it_ends_and_what_would_end_it_sooner() -> None:
    ends: dict[str, Any] = {
        "expected_at": "2026-12-04T14:10:00Z", "late_at": "2026-12-04T16:40:00Z",
        "late_means": "90 %", "basis": "37 earlier runs", "deadline_at": "2026-12-04T18:00:00Z",
        "slips": False, "at_risk": False,
        "alternatives": [
            {"what": "in us-east/h100", "expected_at": "2026-12-04T12:30:00Z",
             "difference_usd": 31.0},
        ],
    }  # fmt: skip
    assert candidates.ending_lines(ends, NOW) == [
        "ends Fri 14:10, 90 % by Fri 16:40; in us-east/h100: Fri 12:30 for $31.00 more "
        "(by 37 earlier runs).",
        "The deadline is Fri 18:00.",
    ]
    late = ends | {"slips": True, "late_means": "at most", "alternatives": []}
    assert candidates.ending_lines(late, NOW) == [
        "ends Fri 14:10, at the latest Fri 16:40 (by 37 earlier runs).",
        "WARNING: that is past the deadline, Fri 18:00.",
    ]
    assert candidates.ending_lines({}, NOW) == []


def test_when_it_starts_if_nothing_changes() -> None:
    starts: dict[str, Any] = {
        "from_at": "2026-11-30T14:00:00Z", "until_at": "2026-11-30T16:00:00Z", "cluster": "east",
        "predictions": 0, "within_until": None,
    }  # fmt: skip
    (line,) = candidates.explanation_lines({"starts_unchanged": starts}, NOW)
    assert line == (
        "If nothing changes it starts between 14:00:00 and 16:00:00 in east; "
        "no such prediction has come due here yet."
    )
    known = starts | {"predictions": 120, "within_until": 0.82}
    (line,) = candidates.explanation_lines({"starts_unchanged": known}, NOW)
    assert line.endswith("of 120 such predictions 82% came true by the later time.")


def test_a_place_that_is_taken_is_told_with_the_wait_for_room() -> None:
    taken = {"code": "no_capacity", "text": "full"}
    rows = [
        {"cluster": "a", "start_delay_s": 1, "start_delay_p90_s": 5, "room_in_s": [3599, 7195],
         "why_not": taken},
        {"cluster": "b", "start_delay_s": 1, "start_delay_p90_s": 5, "room_in_s": None,
         "why_not": taken},
    ]  # fmt: skip
    shown = [row[4] for row in candidates.candidate_table({"candidates": rows}).rows]
    assert shown == ["1h00m-2h00m", "?"]
