"""What if, on a planning problem in a file: needs no broker."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.cli.exits import Exit, Failure
from broker.cli.plan_problem import read_problem_bytes
from broker.cli.whatif_options import split_count
from broker.control.policy_on_problem import under_policy
from broker.control.policy_text import InvalidPolicy, read_policy
from broker.control.sides import comparison, side
from broker.control.trial_rows import Subject, compare
from broker.decide.decision import Budget, decide
from broker.decide.problem_file import parse_problem, problem_from_json
from broker.decide.problem_json import problem_to_json
from broker.decide.strict_json import ProblemError
from broker.decide.whatif import Changes, PriceChange, QuotaChange, UnknownTarget, changed
from broker.model.policies import Policy
from broker.model.problem import Job, Problem
from federation.job_errors import FieldError


def whatif_of_file(
    path: str, asked: Mapping[str, Any], added: Sequence[str], budget_s: float
) -> dict[str, Any]:
    """The answer as the API gives it. `asked` are the changes of `POST /v1/whatif`, `added` files
    with entries of `jobs` of the format, each with `:N`. Raises Failure."""
    before = problem_of(path)
    more = [entry for text in added for entry in _entries(text)]
    after = _with_jobs(before, more)
    try:
        after = changed(after, _changes(asked))
    except UnknownTarget as unknown:
        raise Failure(Exit.BAD_INPUT, str(unknown), f"name one that is in {path}") from None
    policies = [read_or_fail(source, "--policy") for source in asked.get("policies", ())]
    return compared_worlds(before, after, policies, budget_s, set(asked["lose"]))


def problem_of(path: str, data: bytes | None = None) -> Problem:
    """The problem in a file, or in `data` of that name. Raises Failure."""
    try:
        return parse_problem(read_problem_bytes(path) if data is None else data)
    except (ProblemError, OSError, EOFError, zlib.error) as error:
        raise Failure(Exit.BAD_INPUT, f"{path}: {error}") from None


def read_or_fail(source: str, name: str) -> Policy:
    """The policy in a text. Raises Failure with each fault as NAME:LINE:COLUMN."""
    try:
        return read_policy(source)
    except InvalidPolicy as invalid:
        lines = "".join(
            f"\n  {name}:{fault.line}:{fault.column}: {FieldError.__str__(fault)}"
            for fault in invalid.faults
        )
        raise Failure(Exit.BAD_INPUT, f"{name} is not a policy:{lines}") from None


def compared_worlds(
    before: Problem,
    after: Problem,
    policies: Sequence[Policy] = (),
    budget_s: float = 5.0,
    lost: Collection[str] = (),
) -> dict[str, Any]:
    """Two problems decided and set beside each other, the second under policies too; `lost` are
    clusters and regions that it is without."""
    notes, governed = list[str](), frozenset[str]()
    for policy in policies:
        tried = under_policy(after, policy)
        after, governed = tried.problem, governed | tried.governed
        notes += [note for note in tried.notes if note not in notes]
    budget = Budget(cpu_s=budget_s)
    plans = decide(before, budget), decide(after, budget)
    known = {job.id for job in before.jobs}
    subjects = [
        replace(_subject(job, there=job.id in known), affected=job.id in governed)
        if job.id in known else _subject(job, there=False)
        for job in after.jobs
    ]  # fmt: skip
    compared = compare(subjects, (before, after), plans)
    told = comparison(side(before, plans[0]), side(after, plans[1]), compared.rows)
    regions = {cluster.name: cluster.region for cluster in after.clusters}
    clusters = {pool.name: pool.cluster for pool in after.pools}
    running = {j.id: clusters[j.current_pool] for j in before.jobs if j.current_pool}
    gone = {job for job, name in running.items() if {name, regions[name]} & set(lost)}
    return {
        **told,
        "moved": compared.moved,
        "running": {"stay": len(running) - len(gone), "displaced": len(gone)},
        "governed": len(governed) if policies else None,
        "notes": notes,
    }


def _changes(asked: Mapping[str, Any]) -> Changes:
    return Changes(
        drain=tuple(asked["drain"]),
        lose=tuple(asked["lose"]),
        prices=tuple(
            PriceChange(p["target"], p.get("usd"), p.get("factor", 1.0)) for p in asked["prices"]
        ),
        quotas=tuple(
            QuotaChange(q["tenant"], q["accelerators"], q.get("cluster")) for q in asked["quotas"]
        ),
    )


def _entries(text: str) -> list[dict[str, Any]]:
    path, count = split_count(text)
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failure(Exit.BAD_INPUT, f"{path}: {error}", "an entry of `jobs`, as JSON") from None
    found = document if isinstance(document, list) else [document]
    if not all(isinstance(entry, dict) for entry in found):
        raise Failure(Exit.BAD_INPUT, f"{path}: not an entry of `jobs`", "write an object")
    return [{**entry, "count": int(entry.get("count", 1)) * count} for entry in found]


def _with_jobs(problem: Problem, entries: Sequence[dict[str, Any]]) -> Problem:
    """The problem with more jobs at the end, checked as those of a file are."""
    if not entries:
        return problem
    written = problem_to_json(replace(problem, jobs=()))
    try:
        jobs: tuple[Job, ...] = problem_from_json({**written, "jobs": list(entries)}).jobs
        twice = {job.id for job in problem.jobs} & {job.id for job in jobs}
        if twice:
            raise ProblemError("jobs", f"{sorted(twice)[0]!r} is in the problem already")
    except ProblemError as error:
        raise Failure(Exit.BAD_INPUT, f"--add: {error}") from None
    return replace(problem, jobs=(*problem.jobs, *jobs))


def _subject(job: Job, *, there: bool) -> Subject:
    state = "running" if job.current_pool else "queued"
    return Subject(
        id=job.id, name=job.id, tenant=job.tenant, state=state if there else "added",
        priority=job.priority, created_ms=0, copies=job.count, ran_in=job.current_pool or "",
        policies=((), ()), affected=not there,
    )  # fmt: skip
