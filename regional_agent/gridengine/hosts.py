"""Hosts and who waits, as `qhost -q -j -F -xml` and `qstat -s p -r -xml` tell them. Pure; read from
Grid Engine 8.1.9."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from regional_agent.gridengine.amounts import amount
from regional_agent.gridengine.said import task_count

GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class QueueInstance:
    """A queue on a host. `state`: letters of trouble (a: load alarm, d: disabled, E: error, u:
    unreachable, s, S: suspended, C, D: by its calendar ...), empty where it takes jobs."""

    slots: int
    used: int
    reserved: int
    state: str
    batch: bool


@dataclass(frozen=True, slots=True)
class JobOnHost:
    """A slot that a job holds on a host; `first`: its script runs there."""

    local_id: str
    index: int
    name: str
    queue: str
    first: bool


@dataclass(frozen=True, slots=True)
class HostFacts:
    """`resources`: by name what is left of those that are counted, and what load values and fixed
    ones say."""

    name: str
    resources: Mapping[str, str]
    queues: Mapping[str, QueueInstance]
    jobs: tuple[JobOnHost, ...]

    def left(self, resource: str) -> float:
        """How much of a counted resource is left; 0 where it has none."""
        return amount(self.resources.get(resource, ""))


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job, or the rest of an array, that waits; or one that runs, in the queue `runs_in`.
    `queues`: those it names; empty: any."""

    local_id: str
    name: str
    state: str
    count: int
    slots: int
    requests: Mapping[str, float]
    queues: tuple[str, ...]
    runs_in: str = ""


def parse_hosts(out: str) -> tuple[HostFacts, ...]:
    """Of qhost. Raises ValueError for something else."""
    return tuple(
        _host(host) for host in _tree(out, "qhost").iter("host") if host.get("name") != GLOBAL
    )


def _host(host: ElementTree.Element) -> HostFacts:
    jobs = []
    for job in host.iter("job"):
        said = {v.get("name", ""): v.text or "" for v in job.iter("jobvalue")}
        task = said.get("taskid", "")
        jobs.append(
            JobOnHost(
                local_id=job.get("name", ""),
                index=int(task) if task.isdigit() else 0,
                name=said.get("job_name", ""),
                queue=said.get("qinstance_name", "").partition("@")[0],
                first=said.get("pe_master") == "MASTER",
            )
        )
    return HostFacts(
        name=host.get("name", ""),
        resources={v.get("name", ""): v.text or "" for v in host.iter("resourcevalue")},
        queues={queue.get("name", ""): _instance(queue) for queue in host.iter("queue")},
        jobs=tuple(jobs),
    )


def _instance(queue: ElementTree.Element) -> QueueInstance:
    said = {v.get("name", ""): (v.text or "").strip() for v in queue.iter("queuevalue")}
    return QueueInstance(
        slots=_number(said.get("slots", "")),
        used=_number(said.get("slots_used", "")),
        reserved=_number(said.get("slots_resv", "")),
        state=said.get("state_string", ""),
        batch="B" in said.get("qtype_string", "B"),
    )


def parse_waiting(out: str) -> tuple[WaitingJob, ...]:
    """Of qstat. Raises ValueError for something else."""
    return tuple(
        WaitingJob(
            local_id=job.findtext("JB_job_number", ""),
            name=job.findtext("JB_name", ""),
            state=job.findtext("state", ""),
            count=task_count(job.findtext("tasks")),
            slots=max(1, _number(job.findtext("slots", ""))),
            requests={r.get("name", ""): amount(r.text or "") for r in job.iter("hard_request")},
            queues=tuple(
                name.partition("@")[0]
                for each in job.iter("hard_req_queue")
                for name in (each.text or "").split(",")
            ),
            runs_in=job.findtext("queue_name", "").partition("@")[0],
        )
        for job in _tree(out, "qstat").iter("job_list")
    )


def _tree(out: str, client: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(out)  # noqa: S314  written by the site's own client
    except ElementTree.ParseError as problem:
        raise ValueError(f"{client} wrote no XML: {problem}") from problem


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
