"""Whether a site takes a command: ticket, digest, who it is for, what it needs. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.job_parts import ISOLATION_GRADES
from federation.jobs import InvalidJob, JobSpec, parse_job_spec, spec_digest
from federation.refusals import Refusal, RefusalCode
from federation.site_limits import refuses_person
from federation.tickets import Ticket, open_ticket
from regional_agent.session.commands import Dispatch, Placement, Prepare
from regional_agent.session.ledger import Request
from regional_agent.session.site_policy import SitePolicy


@dataclass(frozen=True, slots=True)
class SiteRules:
    """What the site takes. `features` are those of its scheduler; `tenants` empty: everybody.

    `state` is open, draining or paused, and `state_reason` says why for people; the last two
    take nothing new. `policy` is what `site.yaml` says.
    """

    cluster: str
    features: frozenset[str] = field(default_factory=frozenset)
    tenants: frozenset[str] = field(default_factory=frozenset)
    state: str = "open"
    state_reason: str = ""
    policy: SitePolicy = field(default_factory=SitePolicy)
    isolation: str = ISOLATION_GRADES[0]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A command that passed."""

    ticket: Ticket
    spec: JobSpec


def check_ticket(
    command: Dispatch | Prepare,
    rules: SiteRules,
    keys: Mapping[str, bytes],
    *,
    now_ms: int,
    epoch_min: int,
) -> Ticket | Refusal:
    """The ticket of a command, if it allows exactly this; `now_ms` is broker time."""
    ticket = open_ticket(
        command.ticket, keys, now_ms=now_ms, cluster=rules.cluster, epoch_min=epoch_min
    )
    if isinstance(ticket, Refusal):
        return ticket
    if ticket.uid != command.uid:
        return Refusal(
            RefusalCode.TICKET_INVALID, command.uid, available=f"a ticket for {ticket.uid}"
        )
    return ticket


def admit(command: Dispatch, ticket: Ticket, rules: SiteRules) -> Admitted | Refusal:
    """Whether the site can run what this ticket allows; its rules, its state and its capacity
    are not looked at."""
    admitted = read_spec(command, ticket)
    if isinstance(admitted, Refusal):
        return admitted
    wanted = admitted.spec.resources.isolation
    if wanted and ISOLATION_GRADES.index(wanted) > ISOLATION_GRADES.index(rules.isolation):
        return Refusal(RefusalCode.ISOLATION_TOO_WEAK, rules.cluster, wanted, rules.isolation)
    missing = _missing(admitted.spec, command.placement, rules)
    if missing:
        return Refusal(RefusalCode.UNSUPPORTED, rules.cluster, needed=missing)
    return admitted


def read_spec(command: Dispatch | Prepare, ticket: Ticket) -> Admitted | Refusal:
    """The spec of a command, if it is the ticket's."""
    if spec_digest(command.spec) != ticket.spec_sha256:
        return Refusal(
            RefusalCode.SPEC_MISMATCH, command.uid, available="another spec than the ticket's"
        )
    try:
        spec = parse_job_spec(json.loads(command.spec))
    except (InvalidJob, ValueError, RecursionError) as problem:
        return Refusal(RefusalCode.UNSUPPORTED, command.uid, available=str(problem)[:500])
    return Admitted(ticket, spec)


def not_taken(ticket: Ticket, rules: SiteRules) -> Refusal | None:
    """Why the site takes nothing new now, or nothing of this tenant or user."""
    if rules.state != "open":
        code = RefusalCode.DRAINING if rules.state == "draining" else RefusalCode.PAUSED
        return Refusal(code, rules.cluster, available=rules.state_reason)
    if rules.tenants and ticket.tenant not in rules.tenants:
        return Refusal(
            RefusalCode.TENANT_NOT_ALLOWED, rules.cluster, needed=f"tenant {ticket.tenant}"
        )
    limits = rules.policy.limits
    return refuses_person(limits, rules.cluster, ticket.tenant, ticket.subject)


def _missing(spec: JobSpec, placement: Placement, rules: SiteRules) -> str:
    features = rules.features
    if placement.tasks and "array" not in features:
        return "arrays"
    if placement.replicas > 1 and "gang" not in features:
        return "gangs"
    if placement.tasks and placement.replicas > 1 and "single_gangs" in features:
        return "arrays whose tasks are gangs"
    if on_one_node(spec) and "one_node" not in features:
        return "gangs on one node"
    if spec.apart_on_nodes and f"{spec.apart_on_nodes}_apart" not in features:
        return f"{spec.apart_on_nodes} of a job on nodes of their own"
    if placement.parts and "parts" not in features:
        return "gangs over several pools, or in one rack of a pool"
    if spec.image is not None and "images" not in features:
        return f"the image {spec.image}"
    if placement.fence_after_s and "fence" not in features:
        return "a fence (stopping a job by itself when its contact ends)"
    if spec.secrets and "secrets" not in features:
        return "sealed secrets"
    return ""


def on_one_node(spec: JobSpec) -> bool:
    """Whether the members of a gang have to share a node."""
    return spec.resources.topology == "node" and spec.resources.replicas > 1


def request_of(placement: Placement, spec: JobSpec | None) -> Request:
    """What a placement of a job takes of the site: a CPU job one slot at least."""
    per_replica = placement.accelerators_per_replica
    if placement.accelerator in ("", "CPU"):
        per_replica = max(1, per_replica)
    return Request(
        pool=placement.pool,
        replicas=max(1, placement.replicas),
        accelerators=per_replica,
        cpus_milli=placement.cpus_milli_per_replica,
        memory_bytes=placement.memory_bytes_per_replica,
        width=max(1, placement.width),
        one_node=spec is not None and on_one_node(spec),
        extras=tuple(sorted(spec.resources.extras.items())) if spec is not None else (),
        features=spec.resources.features if spec is not None else (),
        parts=placement.parts,
        own_nodes=spec is not None and bool(spec.apart_on_nodes),
    )
