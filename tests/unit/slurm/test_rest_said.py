"""slurmrestd and Slurm's JSON from 23.11 on. The forms v0.0.40 to v0.0.42 were written after the
documentation (https://slurm.schedmd.com/rest_api.html) and the manual of 24.05, not read from a
running cluster; v0.0.38 was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from federation.runs import Runs
from regional_agent.slurm.licences import Licence
from regional_agent.slurm.limits import Partition
from regional_agent.slurm.nodes import Reserved, parse_nodes
from regional_agent.slurm.rest_said import (
    environment_of,
    job_of,
    licences_of,
    never_again,
    partitions_of,
    reservations_of,
    rows_of,
)
from regional_agent.slurm.states import ENDED


def number(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


UNSET: dict[str, object] = {"set": False, "infinite": False, "number": 0}
OLD_JOB: dict[str, Any] = {
    "job_id": 5, "array_job_id": 5, "array_task_id": None, "array_task_string": "1-6%2",
    "job_state": "PENDING", "state_reason": "Resources", "user_name": "root", "partition": "main",
    "node_count": 2, "cpus": 2, "nodes": "", "start_time": 0, "name": "j-1",
    "tres_per_node": "gres:gpu:h100:4", "comment": "tradewind:j-1:0",
}  # fmt: skip
NEW_JOB: dict[str, Any] = OLD_JOB | {
    "array_job_id": number(5), "array_task_id": UNSET, "job_state": ["PENDING"],
    "node_count": number(2), "cpus": number(2), "start_time": UNSET,
    "tres_per_node": "gres/gpu:h100:4",
}  # fmt: skip
NEW_NODE: dict[str, Any] = {
    "name": "n1", "state": ["MIXED", "DYNAMIC_NORM"], "partitions": ["gpu"], "cpus": 64,
    "alloc_cpus": 8, "real_memory": 512000, "alloc_memory": 1000, "features": ["ib", "icelake"],
    "active_features": ["ib"], "gres": "gpu:h100:8(S:0-1)", "gres_used": "gpu:h100:3(IDX:0-2)",
    "free_mem": number(1), "reservation": "",
}  # fmt: skip


@pytest.mark.parametrize("job", [OLD_JOB, NEW_JOB], ids=["v0.0.38", "v0.0.40"])
def test_a_waiting_array_is_one_row_whatever_the_form(job: dict[str, Any]) -> None:
    (row,) = rows_of({"jobs": [job]})
    assert (row.local_id, row.indices, row.state) == ("5", Runs(((1, 6),)), "PENDING")
    assert (row.cards, row.nodes, row.start_s, row.uids) == (8, 2, 0, ("j-1",))


def test_an_element_that_runs_and_a_job_that_is_none() -> None:
    element = NEW_JOB | {
        "job_id": 9, "array_task_id": number(3), "array_task_string": "",
        "job_state": ["RUNNING"], "nodes": "n[1-2]", "start_time": number(1_700_000_000),
    }  # fmt: skip
    single = NEW_JOB | {
        "array_job_id": number(0), "array_task_string": "", "comment": {"job": "x"},
        "job_state": ["COMPLETED", "COMPLETING"], "array_task_id": UNSET,
    }  # fmt: skip
    first, second = rows_of({"jobs": [element, single]})
    assert (first.local_id, first.job_id, first.indices) == ("5", "9", Runs(((3, 3),)))
    assert (first.start_s, first.node_list, first.runs) == (1_700_000_000, "n[1-2]", True)
    assert (second.indices, second.comment) == (None, "x")
    assert second.runs and second.state not in ENDED, "it still holds its nodes"
    with pytest.raises(ValueError, match="names no jobs"):
        rows_of({"errors": []})


def test_nodes_of_newer_releases() -> None:
    drained = NEW_NODE | {"name": "n2", "state": ["IDLE", "DRAIN"]}
    down = NEW_NODE | {"name": "n3", "state": ["DOWN", "NOT_RESPONDING"]}
    free, *others = parse_nodes(json.dumps({"nodes": [NEW_NODE, drained, down]}))
    assert free.takes_jobs and not any(node.takes_jobs for node in others)
    assert (free.gres, free.cards, free.cards_used, free.cpus_used) == ("h100", 8, 3, 8)
    assert free.features == ("ib",) and free.partitions == ("gpu",)
    wrapped = NEW_NODE | {"cpus": number(64), "alloc_cpus": number(8), "real_memory": number(9)}
    (again,) = parse_nodes(json.dumps({"nodes": [wrapped]}))
    assert (again.cpus, again.cpus_used, again.memory_mib) == (64, 8, 9)


def test_licences() -> None:
    said = {"LicenseName": "matlab", "Total": 4, "Used": 3, "Free": 0, "Reserved": 1}
    assert licences_of({"licenses": [said, said | {"LicenseName": "a@b"}]}) == (
        Licence("matlab", 3, 3),
    )


WORDS = (
    "--time=5", "--signal=B:USR2@60", "--cpus-per-task=4", "--nodes=2", "--ntasks-per-node=3",
    "--gres=gpu:h100:6", "--mem=100", "--partition=main", "--constraint=ib", "--licenses=matlab:2",
    "--array=0-7%3", "--hold",
)  # fmt: skip


def test_a_job_is_told_in_the_form_of_the_version() -> None:
    old, new = (job_of(WORDS, version) for version in ("v0.0.38", "v0.0.41"))
    both = {
        "time_limit": 5, "cpus_per_task": 4, "tasks_per_node": 3, "tasks": 6, "partition": "main",
        "constraints": "ib", "licenses": "matlab:2", "array": "0-7%3", "hold": True,
    }  # fmt: skip
    assert old == both | {"nodes": [2, 2], "gres": "gpu:h100:6", "memory_per_node": 100}
    assert new == both | {
        "minimum_nodes": 2, "maximum_nodes": 2, "tres_per_node": "gres/gpu:h100:6",
        "memory_per_node": {"set": True, "number": 100}, "kill_warning_signal": "USR2",
        "kill_warning_delay": {"set": True, "number": 60}, "kill_warning_flags": ["BATCH_JOB"],
    }  # fmt: skip
    with pytest.raises(ValueError, match="--exclusive"):
        job_of(["--exclusive"], "v0.0.41")
    assert never_again("v0.0.38") != never_again("v0.0.42")
    assert environment_of({"A": "1"}, "v0.0.38") == {"A": "1"}
    assert environment_of({"A": "1"}, "v0.0.42") == ["A=1"]


def test_reservations_in_the_old_form_and_the_new_one() -> None:
    named = {"name": "m", "node_list": "n[1-2]", "flags": ["MAINT", "SPEC_NODES"]}
    old = named | {"start_time": 1000, "end_time": 2000}
    new = named | {"start_time": number(1000), "end_time": number(2000)}
    for said in (old, new):
        assert reservations_of({"reservations": [said]}) == (
            Reserved("m", frozenset({"n1", "n2"}), 1000, 2000, maintenance=True),
        )
    assert not reservations_of({"reservations": [old | {"flags": []}]})[0].maintenance
    with pytest.raises(ValueError, match="no reservations"):
        reservations_of({"errors": []})


def test_partitions_of_the_old_form() -> None:
    main = {"name": "main", "flags": ["default"], "state": "UP", "max_time_limit": 720, "qos": ""}
    low: dict[str, Any] = {"name": "low", "flags": [], "state": "DOWN", "qos": "spare"}
    low["max_time_limit"] = None
    assert partitions_of({"partitions": [main, low]}) == (
        Partition("main", usual=True, up=True, walltime_max_s=43_200),
        Partition("low", usual=False, up=False, walltime_max_s=0, qos="spare"),
    )
    with pytest.raises(ValueError, match="no partitions"):
        partitions_of({"errors": []})
