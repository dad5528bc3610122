"""From a plan for the forms of a problem (`forms`) to a plan for the problem itself, and what to
start from the other way round."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from broker.decide.forms import Forms, Leaf, shared_place
from broker.decide.reasons import distance
from broker.model.plan import Assignment, NodeFill, Part, Plan, Unplaced
from broker.model.problem import Job, Pool
from broker.model.topology import Topology
from broker.model.warm import Warm


def unfolded(forms: Forms, plan: Plan) -> Plan:
    """The plan for the original problem."""
    return replace(
        plan,
        assignments=_assignments(forms, plan),
        unplaced=_unplaced(forms, plan),
        fills=_fills(forms, plan),
        whole_nodes=_whole_nodes(forms, plan),
        charged_as_packed=tuple(dict.fromkeys(_home(forms, n) for n in plan.charged_as_packed)),
    )


def in_forms(forms: Forms, warm: Warm | None) -> Warm | None:
    """What to start from, told in the forms; where a copy lies in several places that is passed
    over when they are none of one form now."""
    if warm is None:
        return None
    leaves = {(leaf.pool, leaf.rack): name for name, leaf in forms.leaves.items()}
    forms_of: dict[str, list[Job]] = defaultdict(list)
    for job in forms.jobs.values():
        forms_of[job.form_of or job.id].append(job)
    found: list[Assignment] = []
    for item in warm.assignments:
        if not item.parts:
            found.append(item)
            continue
        places = [leaves.get((part.pool, part.rack), part.pool) for part in item.parts]
        for job in forms_of[item.job]:
            if _is_of(job, item) and (job.among is None or job.among.issuperset(places)):
                found += _started(job, item, places)
                break
    return replace(warm, assignments=tuple(found))


def _is_of(job: Job, item: Assignment) -> bool:
    """Whether copies that were assigned so are of a form."""
    level = item.level or job.topology
    return job.topology is level and (job.members > 1) == (len(item.parts) > 1)


def _started(job: Job, item: Assignment, places: list[str]) -> Iterator[Assignment]:
    for part, place in zip(item.parts, places, strict=True):
        each = part.replicas if job.members > 1 else 1
        yield Assignment(job.id, place, item.count * each)


# Assignments --------------------------------------------------------------------------------


def _assignments(forms: Forms, plan: Plan) -> tuple[Assignment, ...]:
    pools = {pool.name: pool for pool in forms.problem.pools}
    found: Counter[Assignment] = Counter()
    by_member: dict[tuple[str, tuple[str, ...]], list[tuple[Part, int]]] = defaultdict(list)
    for item in plan.assignments:
        job, pool = forms.jobs[item.job], pools[item.pool]
        part = _part(forms, pool, 1)
        if job.members > 1:
            by_member[job.id, shared_place(job.scope, pool)].append((part, item.count))
        else:
            found[_whole(forms, job, item, part)] += item.count
    for (name, _), members in by_member.items():
        job = forms.jobs[name]
        for parts in _copies(members, job.members):
            one = Assignment(job.form_of or job.id, parts[0].pool, 1, parts=parts)
            found[replace(one, level=_level(job))] += 1
    order = {job.id: index for index, job in enumerate(forms.original.jobs)}
    place = {pool.name: index for index, pool in enumerate(forms.original.pools)}
    made = [replace(one, count=count) for one, count in found.items()]
    return tuple(sorted(made, key=lambda a: (order[a.job], place[a.pool], a.queued, repr(a))))


def _whole(forms: Forms, job: Job, item: Assignment, part: Part) -> Assignment:
    gang = job.units > 1
    bound = gang and part.pool != item.pool
    return Assignment(
        job.form_of or job.id,
        part.pool,
        1,
        item.queued,
        item.start_h,
        parts=(replace(part, replicas=job.units),) if bound else (),
        level=_level(job) if gang else None,
    )


def _level(job: Job) -> Topology | None:
    """The level of a form, where its job pays for levels."""
    return job.topology if job.topology_usd else None


def _part(forms: Forms, pool: Pool, replicas: int) -> Part:
    leaf = forms.leaves.get(pool.name)
    return Part(leaf.pool, leaf.rack, replicas) if leaf else Part(pool.name, "", replicas)


def _copies(members: list[tuple[Part, int]], size: int) -> Iterator[tuple[Part, ...]]:
    """Where the replicas of each copy are: as many copies as may be in one place, then the rest."""
    for part, count in members:
        for _ in range(count // size):
            yield (replace(part, replicas=size),)
    parts: list[Part] = []
    missing = size
    for part, count in members:
        left = count % size
        while left:
            taken = min(left, missing)
            parts.append(replace(part, replicas=taken))
            left, missing = left - taken, missing - taken
            if not missing:
                yield tuple(parts)
                parts, missing = [], size


# Nodes --------------------------------------------------------------------------------------


def _home(forms: Forms, pool: str) -> str:
    leaf = forms.leaves.get(pool)
    return leaf.pool if leaf else pool


def _whole_nodes(forms: Forms, plan: Plan) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for pool, nodes in plan.whole_nodes.items():
        found[_home(forms, pool)] += nodes
    return dict(found)


def _fills(forms: Forms, plan: Plan) -> tuple[NodeFill, ...]:
    found: list[NodeFill] = []
    for fill in plan.fills:
        contents: Counter[str] = Counter()
        for name, replicas in fill.contents:
            job = forms.jobs[name]
            contents[job.form_of or job.id] += replicas
        told = tuple(contents.items())
        leaf = forms.leaves.get(fill.pool)
        if leaf is None:
            found.append(replace(fill, contents=told))
            continue
        for first, nodes in _spans(leaf, fill.first_node, fill.nodes):
            found.append(NodeFill(leaf.pool, first, nodes, told))
    place = {pool.name: index for index, pool in enumerate(forms.original.pools)}
    return tuple(sorted(found, key=lambda fill: (place[fill.pool], fill.first_node)))


def _spans(leaf: Leaf, first: int, nodes: int) -> Iterator[tuple[int, int]]:
    """Nodes of a rack as runs of nodes of its pool."""
    starts = [0]
    for _, count in leaf.nodes:
        starts.append(starts[-1] + count)
    while nodes > 0:
        group = bisect_right(starts, first) - 1
        taken = min(nodes, starts[group + 1] - first)
        yield leaf.nodes[group][0] + first - starts[group], taken
        first, nodes = first + taken, nodes - taken


# What is left -------------------------------------------------------------------------------


def _unplaced(forms: Forms, plan: Plan) -> tuple[Unplaced, ...]:
    """The nearest reason of all forms; those of whole gangs say more than those of members."""
    left = {job.id: job.count for job in forms.original.jobs}
    for item in plan.assignments:
        job = forms.jobs[item.job]
        left[job.form_of or job.id] -= 0 if job.members > 1 else item.count
    members: Counter[str] = Counter()
    for item in plan.assignments:
        if forms.jobs[item.job].members > 1:
            members[item.job] += item.count
    for name, count in members.items():
        job = forms.jobs[name]
        left[job.form_of or job.id] -= count // job.members
    reasons: dict[str, list[Unplaced]] = defaultdict(list)
    for rest in plan.unplaced:
        reasons[forms.jobs[rest.job].form_of or rest.job].append(rest)
    found: list[Unplaced] = []
    for name, count in left.items():
        if count:
            best = min(
                reasons[name],
                key=lambda rest: (forms.jobs[rest.job].members > 1, distance(rest.refusal)),
            )
            refusal = replace(best.refusal, subject=_home(forms, best.refusal.subject))
            found.append(Unplaced(name, count, refusal))
    return tuple(found)
