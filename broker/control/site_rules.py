"""Where a site's own rules, as it reports them, or what it cannot do, keep a job out. Pure.

The site enforces them itself; here they save a way to a refusal and tell people why. Rules about
users and commands are left to the site: jobs alike are planned together, whoever submitted them.
"""

from __future__ import annotations

from broker.model.fleet import APART, FENCE, ONE_NODE, PARTS, SINGLE_GANGS, ClusterView
from federation.jobs import JobSpec
from federation.refusals import Refusal, RefusalCode
from federation.site_limits import (
    NO_LIMITS,
    refuses_image,
    refuses_person,
    refuses_runtime,
    refuses_time,
)


def site_refusal(tenant: str, spec: JobSpec, view: ClusterView, now_ms: int) -> Refusal | None:
    """Why the site's rules keep a job out now; None where they do not."""
    return (
        _no_fence(spec, view)
        or _not_on_one_node(spec, view)
        or _not_on_own_nodes(spec, view)
        or _gangs_in_array(spec, view)
        or _not_in_parts(spec, view)
        or _limits(tenant, spec, view, now_ms)
    )


def _no_fence(spec: JobSpec, view: ClusterView) -> Refusal | None:
    """A job that is to be replaced may run only where it is certain to stop by itself."""
    if not spec.on_disconnect.replace or FENCE in view.identity.capabilities:
        return None
    return Refusal(
        RefusalCode.NO_FENCE,
        view.identity.name,
        needed="a site that stops the job by itself when its contact ends",
        available=f"scheduler {view.identity.scheduler or 'unknown'} without a fence",
        advice="leave out on_disconnect.replace",
    )


def _not_on_one_node(spec: JobSpec, view: ClusterView) -> Refusal | None:
    """A gang that shares a node may run only where somebody sees to that."""
    resources = spec.resources
    if resources.topology != "node" or resources.replicas == 1 or view.capacity is None:
        return None
    if ONE_NODE in view.identity.capabilities:
        return None
    return Refusal(
        RefusalCode.UNSUPPORTED,
        view.identity.name,
        needed="a site that keeps a gang on one node",
        available=f"scheduler {view.identity.scheduler or 'unknown'}, which does not",
        advice="topology cluster",
    )


def _not_on_own_nodes(spec: JobSpec, view: ClusterView) -> Refusal | None:
    """What is to have nodes of its own may run only where the scheduler, which chooses the nodes,
    sees to that."""
    what = spec.apart_on_nodes
    if not what or view.capacity is None or APART[what] in view.identity.capabilities:
        return None
    return Refusal(
        RefusalCode.UNSUPPORTED,
        view.identity.name,
        needed=f"a site that keeps the {what} of a job on nodes of their own",
        available=f"scheduler {view.identity.scheduler or 'unknown'}, which does not",
        advice="leave out placement.spread" + (", or spread: cluster" if what == "tasks" else ""),
    )


def _gangs_in_array(spec: JobSpec, view: ClusterView) -> Refusal | None:
    """An array whose tasks are gangs does not go where only single gangs run."""
    gangs = spec.array is not None and spec.resources.replicas > 1
    if not gangs or SINGLE_GANGS not in view.identity.capabilities:
        return None
    return Refusal(
        RefusalCode.UNSUPPORTED,
        view.identity.name,
        needed="a site that runs arrays of gangs",
        available=f"scheduler {view.identity.scheduler or 'unknown'}, which runs gangs one by one",
        advice="one job per gang",
    )


def _not_in_parts(spec: JobSpec, view: ClusterView) -> Refusal | None:
    """A gang that may lie in several pools may run only where one job of the site's scheduler can:
    a partition of Slurm, a queue or a kind of pods takes all of a job, or none."""
    resources = spec.resources
    if not resources.several_pools or resources.replicas == 1 or view.capacity is None:
        return None
    if PARTS in view.identity.capabilities:
        return None
    return Refusal(
        RefusalCode.UNSUPPORTED,
        view.identity.name,
        needed="a site that runs one gang over several pools",
        available=f"scheduler {view.identity.scheduler or 'unknown'}, which does not",
        advice="leave out several_pools",
    )


def _limits(tenant: str, spec: JobSpec, view: ClusterView, now_ms: int) -> Refusal | None:
    capacity, name = view.capacity, view.identity.name
    if capacity is None or (capacity.limits is NO_LIMITS and not capacity.windows):
        return None
    # Windows to come are a matter of when it starts: see `Pool.maintenance`.
    open_now = [window for window in capacity.windows if window.from_ms <= now_ms]
    limits, runtime_s = capacity.limits, spec.max_runtime_s or 0
    return (
        refuses_person(limits, name, tenant, "")
        or refuses_image(limits, name, spec.image)
        or refuses_runtime(limits, name, runtime_s)
        or refuses_time(open_now, name, runtime_s, now_ms)
    )
