"""What a submission is at Kubernetes: names for it, and what its Job is made of."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from regional_agent.act.schedulers.batch.system import Submission
from regional_agent.kubernetes.cards import CPU
from regional_agent.kubernetes.manifest import JobWanted

NAME_CHARS_MAX = 52
"""Of a Job; its pods add the index of an element, and hold 63 (a DNS label)."""
NAMES_MAX = 3


def names_of(name: str) -> Iterator[str]:
    """Names to submit under, the attempt's own first: others are free to use it too."""
    label = name.replace(".", "-p")
    if len(label) > NAME_CHARS_MAX:
        digest = hashlib.sha256(name.encode()).hexdigest()[:10]
        label = f"{label[: NAME_CHARS_MAX - 11].rstrip('-')}-{digest}"
    yield label
    for nth in range(2, NAMES_MAX + 1):
        yield f"{label}-tw{nth}"


def job_wanted(job: Submission, name: str, called: tuple[str, ...]) -> JobWanted:
    """What a submission asks for; `called` is what nodes call its cards."""
    order = job.order
    has_cards = order.places and order.accelerator not in ("", CPU)
    return JobWanted(
        name=name,
        tag=job.tag,
        uid=order.uid,
        script=job.script,
        work=job.work,
        user=os.getuid(),
        group=os.getgid(),
        indices=job.indices,
        replicas=order.replicas,
        image=order.image.removeprefix("docker://"),
        width=job.width,
        accelerator=order.accelerator,
        products=called,
        cards=len(order.places[0].accelerators) if has_cards else 0,
        cpus_milli=order.cpus_milli,
        memory_bytes=order.memory_bytes,
        max_runtime_s=order.max_runtime_s,
        grace_s=order.grace_s,
        apart=order.job if order.own_nodes else "",
    )
