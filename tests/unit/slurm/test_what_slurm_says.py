"""What Slurm's clients print: 22.05 as it was seen, newer forms after Slurm's examples."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from federation.runs import Runs
from regional_agent.act.schedulers.port import OutcomeKind
from regional_agent.act.schedulers.slurm import _account
from regional_agent.sense.slurm_pools import SlurmAnswers, put_together
from regional_agent.slurm import books, limits, nodes, queue, states
from regional_agent.slurm.site import SlurmSite

GIB = 2**30


def account(state: str, code: str = "0:0", steps: str = "") -> books.JobAccount:
    line = f"17|job-1|{state}|{code}|100|200|00:01.500||100M|90|/w|\n"
    (job,) = books.parse_sacct(line + steps)
    return job


@pytest.mark.parametrize(
    ("state", "code", "kind"),
    [
        ("COMPLETED", "0:0", OutcomeKind.SUCCEEDED),
        ("FAILED", "3:0", OutcomeKind.FAILED),
        ("FAILED", "0:11", OutcomeKind.SIGNALLED),
        ("CANCELLED by 1000", "0:15", OutcomeKind.CANCELLED),
        ("TIMEOUT", "0:0", OutcomeKind.TIMED_OUT),
        ("DEADLINE", "0:0", OutcomeKind.TIMED_OUT),
        ("OUT_OF_MEMORY", "0:125", OutcomeKind.OUT_OF_MEMORY),
        ("PREEMPTED", "0:15", OutcomeKind.PREEMPTED),
        ("NODE_FAIL", "0:0", OutcomeKind.LOST),
        ("BOOT_FAIL", "0:0", OutcomeKind.LOST),
    ],
)
def test_lesson_44_every_end_is_told_apart(state: str, code: str, kind: OutcomeKind) -> None:
    outcome = _account(account(state, code)).outcome
    assert outcome is not None and outcome.kind is kind


@pytest.mark.parametrize(
    "state", ["RUNNING", "PENDING", "REQUEUED", "REVOKED", "SUSPENDED", "HOVERING", ""]
)
def test_lesson_44_what_is_no_known_end_is_none(state: str) -> None:
    assert _account(account(state)).outcome is None
    assert state not in states.ENDED


def test_memory_enforced_by_accounting_is_seen_in_the_steps() -> None:
    step = "17.batch|batch|CANCELLED by 0|0:9|100|200|00:00.498|599636K||90||\n"
    job = account("FAILED", "0:9", step)
    assert job.state == "OUT_OF_MEMORY" and job.max_rss_bytes == 599636 * 1024
    under = "17.batch|batch|CANCELLED by 0|0:9|100|200|00:00.498|5000K||90||\n"
    assert account("FAILED", "0:9", under).state == "FAILED"


def test_elements_of_arrays_and_those_never_made() -> None:
    out = (
        "3_0|a-1|COMPLETED|0:0|1|2|00:00.005||100M|1|/w|\n"
        "3_[2-5%2]|a-1|PENDING|0:0|Unknown|Unknown|00:00:00||100M|1|/w|\n"
    )
    assert [(j.local_id, j.index) for j in books.parse_sacct(out)] == [("3", 0)]


def test_lesson_23_a_job_of_that_name_is_ours_by_comment_or_directory_only() -> None:
    stranger = account("RUNNING")
    assert books.by_name([stranger], "job-1", "tradewind:job-1:0", "/other") is None
    assert books.by_name([stranger], "job-1", "tradewind:job-1:0", "/w") == "17"
    tagged = replace(stranger, comment="tradewind:job-1:0", work="/elsewhere")
    assert books.by_name([tagged], "job-1", "tradewind:job-1:0", "/w") == "17"


@pytest.mark.parametrize(
    ("text", "ms"), [("00:01.500", 1500), ("01:00:00", 3_600_000), ("1-00:00:01", 86_401_000)]
)
def test_times_of_sacct(text: str, ms: int) -> None:
    assert books.cpu_ms(text) == ms


def test_the_queue_with_anything_in_a_comment() -> None:
    out = (
        "3|3|2-3,7,9-13:2%2|PENDING|JobArrayTaskLimit|root|main|1|1||N/A|gpu:3|wrap|a b|c\n"
        "1|1|N/A|RUNNING|None|root|main|2|6|n[1-2]|1796059568|gres/gpu:4|gang|(null)\n"
        "no row\n"
    )
    array, gang = queue.parse_queue(out)
    assert array.indices == Runs.of([(2, 3), (7, 7), (9, 9), (11, 11), (13, 13)])
    assert (array.comment, array.pending) == ("a b|c", True)
    assert array.text == "pending: JobArrayTaskLimit"
    assert gang.indices is None and gang.runs and gang.comment == ""
    assert (array.cards, gang.cards) == (3, 8)


def node(name: str, **changes: object) -> dict[str, object]:
    """As 22.05 prints one."""
    usual = {
        "name": name, "state": "idle", "state_flags": [], "gres": "gpu:h100:8",
        "gres_used": "gpu:h100:2(IDX:0-1)", "cpus": 64, "alloc_cpus": 4, "real_memory": 512000,
        "alloc_memory": 1000, "partitions": ["main", "long"], "active_features": "a,b",
    }  # fmt: skip
    return usual | changes


NEWER = {
    "name": "n9", "state": ["MIXED", "PLANNED"], "gres": "gpu:h100:8(S:0-1)",
    "gres_used": "gpu:h100:3(IDX:0-2)", "cpus": 64, "alloc_cpus": 8, "real_memory": 512000,
    "alloc_memory": 2000, "partitions": ["main"], "active_features": ["a"],
    "free_mem": {"set": True, "infinite": False, "number": 1},
}  # fmt: skip
"""As `scontrol show nodes --json` of 23.11 prints one, after Slurm's published example."""


NEWEST = NEWER | {
    "name": "n10", "state": ["IDLE"], "gres_used": "gpu:h100:0(IDX:N/A)",
    "alloc_cpus": 0, "alloc_memory": 0, "features": ["a", "b"], "active_features": ["a", "b"],
    "weight": {"set": True, "infinite": False, "number": 1}, "topology": "",
    "real_memory": {"set": True, "infinite": False, "number": 512000},
}  # fmt: skip
"""A form for releases to come, in which numbers that are plain so far are wrapped as others are
since 23.02. Made up: no cluster printed it."""


def test_nodes_whose_numbers_are_wrapped() -> None:
    (new,) = nodes.parse_nodes(json.dumps({"nodes": [NEWEST]}))
    assert (new.gres, new.cards, new.cards_used, new.takes_jobs) == ("h100", 8, 0, True)
    assert (new.memory_mib, new.features) == (512000, ("a", "b"))


def test_nodes_of_both_forms() -> None:
    old, new = nodes.parse_nodes(json.dumps({"nodes": [node("n1"), NEWER]}))
    assert (old.gres, old.cards, old.cards_used, old.takes_jobs) == ("h100", 8, 2, True)
    assert old.features == ("a", "b")
    assert (new.gres, new.cards, new.cards_used, new.takes_jobs) == ("h100", 8, 3, True)


@pytest.mark.parametrize(
    ("state", "flags"),
    [("idle", ["DRAIN"]), ("down", []), ("idle", ["MAINTENANCE"]), ("idle", ["RESERVED"]),
     ("idle", ["NOT_RESPONDING"]), (["IDLE", "DRAIN"], []), ("hovering", [])],
)  # fmt: skip
def test_lesson_25_nodes_that_take_no_jobs_are_not_free(state: object, flags: list[str]) -> None:
    said = node("n1", state=state, state_flags=flags)
    (found,) = nodes.parse_nodes(json.dumps({"nodes": [said]}))
    assert not found.takes_jobs


def test_what_is_no_list_of_nodes_is_an_error() -> None:
    for text in ("[]", "{}", '{"nodes": 3}', "no"):
        with pytest.raises(ValueError):
            nodes.parse_nodes(text)


def test_node_lists() -> None:
    assert list(nodes.expand("n[1-3,07],login")) == ["n1", "n2", "n3", "n07", "login"]
    assert list(nodes.expand("(null)")) == []


def answers(*found: dict[str, object], rows: str = "", reserved: str = "") -> SlurmAnswers:
    partitions = (
        "PartitionName=long Default=NO MaxTime=UNLIMITED State=UP\n"
        "PartitionName=main Default=YES MaxTime=12:00:00 State=UP\n"
        "PartitionName=old Default=NO MaxTime=1:00:00 State=DOWN\n"
    )
    return SlurmAnswers(
        nodes.parse_nodes(json.dumps({"nodes": list(found)})),
        limits.parse_partitions(partitions),
        nodes.parse_reservations(reserved),
        queue.parse_queue(rows),
        limits.parse_config("MaxArraySize = 1001\nMaxJobCount = 9\n", (22, 5)),
    )


def test_lesson_19_a_node_in_two_partitions_is_counted_once() -> None:
    look = put_together(SlurmSite(), answers(node("n1"), node("n2")), frozenset(), 0)
    assert [(p.name, p.nodes) for p in look.seen.pools] == [("main-h100", 2)]
    assert look.sources["main-h100"].walltime_max_s == 12 * 3600


def test_a_gres_type_nobody_can_name_is_left_out_with_a_note() -> None:
    site = SlurmSite()
    said = answers(node("n1", gres="gpu:a100:8"))
    look = put_together(site, said, frozenset(), 0)
    assert look.seen.pools == () and "gres: {a100: NAME}" in look.notes[0]
    look = put_together(replace(site, gres={"a100": "A100-80GB"}), said, frozenset(), 0)
    assert [p.accelerator for p in look.seen.pools] == ["A100-80GB"]


def test_lesson_45_maintenance_of_the_whole_site_is_a_closed_window() -> None:
    text = "ReservationName=m StartTime=1000 EndTime=2000 Nodes=n[1-2] Flags=MAINT,SPEC_NODES\n"
    said = answers(node("n1"), node("n2"), reserved=text)
    before = put_together(SlurmSite(), said, frozenset(), 0)
    assert [(w.from_ms, w.until_ms) for w in before.seen.closed] == [(1_000_000, 2_000_000)]
    assert not before.seen.unschedulable["main-h100"]
    during = put_together(SlurmSite(), said, frozenset(), 1_500_000)
    assert during.seen.unschedulable["main-h100"] == {0, 1}


def test_our_jobs_and_those_of_others() -> None:
    rows = (
        "5|5|N/A|RUNNING|None|me|main|1|4|n2|9|N/A|job-1|tradewind:job-1:0\n"
        "6|6|N/A|RUNNING|None|you|main|1|4|n1|9|N/A|x|(null)\n"
        "7|7|0-9|PENDING|Priority|you|main|1|4||9|gpu|y|tradewind:other-1:0\n"
    )
    said = answers(node("n1"), node("n2"), rows=rows)
    seen = put_together(SlurmSite(), said, frozenset({"job-1"}), 0).seen
    assert seen.running == {"job-1": ((("main-h100", 1),),)}
    assert (seen.others_running, seen.others_waiting) == (1, 10)


def test_versions() -> None:
    assert limits.parse_version("slurm-wlm 22.05.8") == (22, 5) >= limits.OLDEST
    assert limits.parse_version("slurm 23.11.4") >= limits.NODES_BY_SCONTROL
    assert limits.parse_version("nonsense") < limits.OLDEST
