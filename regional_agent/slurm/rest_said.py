"""What slurmrestd says of jobs, licences, partitions and reservations, and how it is told of a
job. Pure.

In the forms from v0.0.39 on a state is a list, and a number may be `{"set", "infinite",
"number"}`. v0.0.38 was read from a running cluster of 22.05, the others from the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from federation.runs import Runs
from regional_agent.slurm import states
from regional_agent.slurm.licences import Licence, named_licences
from regional_agent.slurm.limits import Partition
from regional_agent.slurm.nodes import Reserved, expand, number_of, words_of
from regional_agent.slurm.queue import QueueRow, cards_of, parse_elements

OLD = "v0.0.38"
_SAME = {
    "partition": "partition", "account": "account", "qos": "qos", "constraint": "constraints",
    "licenses": "licenses", "array": "array",
}  # fmt: skip
_NUMBERS = {
    "time": "time_limit", "ntasks": "tasks", "cpus-per-task": "cpus_per_task",
    "ntasks-per-node": "tasks_per_node",
}  # fmt: skip
_MEMORY = {"mem": "memory_per_node", "mem-per-cpu": "memory_per_cpu"}


def rows_of(body: Mapping[str, Any]) -> tuple[QueueRow, ...]:
    """All jobs the controller knows, ended ones too. Raises ValueError."""
    found = body.get("jobs")
    if not isinstance(found, list):
        raise ValueError("slurmrestd names no jobs")
    return tuple(_row(job) for job in found if isinstance(job, dict))


def _row(said: Mapping[str, Any]) -> QueueRow:
    words = [word.upper() for word in words_of(said.get("job_state"))] or [""]
    state = "COMPLETING" if "COMPLETING" in words else words[0]
    job_id, array = number_of(said.get("job_id")), number_of(said.get("array_job_id"))
    comment = said.get("comment") or ""
    if isinstance(comment, dict):
        comment = comment.get("job") or ""
    count = max(1, number_of(said.get("node_count")))
    return QueueRow(
        local_id=str(array or job_id),
        job_id=str(job_id),
        indices=_indices(said) if array else None,
        state=states.state_word(state),
        reason=str(said.get("state_reason") or ""),
        user=str(said.get("user_name") or ""),
        partition=str(said.get("partition") or ""),
        nodes=count,
        cpus=number_of(said.get("cpus")),
        node_list=str(said.get("nodes") or ""),
        start_s=number_of(said.get("start_time")),
        cards=cards_of(str(said.get("tres_per_node") or "")) * count,
        name=str(said.get("name") or ""),
        comment=str(comment),
    )


def _indices(said: Mapping[str, Any]) -> Runs | None:
    text = str(said.get("array_task_string") or "")
    if text:
        return parse_elements(text)
    element = number_of(said.get("array_task_id"))
    return Runs(((element, element),))


def licences_of(body: Mapping[str, Any]) -> tuple[Licence, ...]:
    """Those whose names a job can write down."""
    return named_licences(
        (str(said.get("LicenseName") or ""), number_of(said.get("Total")),
         number_of(said.get("Reserved")), number_of(said.get("Used")))
        for said in body.get("licenses") or () if isinstance(said, dict)
    )  # fmt: skip


def reservations_of(body: Mapping[str, Any]) -> tuple[Reserved, ...]:
    """All of them, in any form. Raises ValueError."""
    found = body.get("reservations")
    if not isinstance(found, list):
        raise ValueError("slurmrestd names no reservations")
    return tuple(
        Reserved(
            name=str(said.get("name") or ""),
            nodes=frozenset(expand(str(said.get("node_list") or ""))),
            from_s=number_of(said.get("start_time")),
            until_s=number_of(said.get("end_time")),
            maintenance="MAINT" in words_of(said.get("flags")),
        )
        for said in found if isinstance(said, dict)
    )  # fmt: skip


def partitions_of(body: Mapping[str, Any]) -> tuple[Partition, ...]:
    """Of v0.0.38: later forms do not say which is the usual one. Raises ValueError."""
    found = body.get("partitions")
    if not isinstance(found, list):
        raise ValueError("slurmrestd names no partitions")
    return tuple(
        Partition(
            name=str(said.get("name") or ""),
            usual="default" in words_of(said.get("flags")),
            up=said.get("state") == "UP",
            walltime_max_s=max(0, number_of(said.get("max_time_limit"))) * 60,
            qos=str(said.get("qos") or ""),
        )
        for said in found if isinstance(said, dict)
    )  # fmt: skip


def job_of(words: Sequence[str], version: str) -> dict[str, Any]:
    """The fields of a job for what sbatch would be told. v0.0.38 takes no signal for the script
    alone, so there the script sees to its time by itself. Raises ValueError for another word."""
    old = version == OLD
    job: dict[str, Any] = {}
    for word in words:
        name, _, value = word.removeprefix("--").partition("=")
        if name in _SAME:
            job[_SAME[name]] = value
        elif name in _NUMBERS:
            job[_NUMBERS[name]] = int(value)
        elif name in _MEMORY:
            job[_MEMORY[name]] = int(value) if old else {"set": True, "number": int(value)}
        elif name == "nodes":
            count = int(value)
            job |= {"nodes": [count, count]} if old else {
                "minimum_nodes": count, "maximum_nodes": count,
            }  # fmt: skip
        elif name == "gres":
            job |= {"gres": value} if old else {"tres_per_node": f"gres/{value}"}
        elif name == "hold":
            job["hold"] = True
        elif name == "signal":
            job |= {} if old else _warning(value)
        else:
            raise ValueError(f"slurmrestd cannot be told {word}")
    if "tasks" not in job and "tasks_per_node" in job:
        count = job.get("minimum_nodes") or job.get("nodes", [1])[0]
        job["tasks"] = count * job["tasks_per_node"]
    return job


def _warning(text: str) -> dict[str, Any]:
    signal, _, seconds = text.removeprefix("B:").partition("@")
    return {
        "kill_warning_signal": signal,
        "kill_warning_delay": {"set": True, "number": int(seconds)},
        "kill_warning_flags": ["BATCH_JOB"],
    }


def never_again(version: str) -> dict[str, bool]:
    """That the site does not put the job back by itself. 22.05 takes `requeue: false` and does not
    heed it; a word that is not in its description does it there."""
    return {"no_requeue": True} if version == OLD else {"requeue": False}


def environment_of(env: Mapping[str, str], version: str) -> object:
    """The environment of a job, which v0.0.38 takes by name and later forms line by line."""
    return dict(env) if version == OLD else [f"{name}={value}" for name, value in env.items()]
