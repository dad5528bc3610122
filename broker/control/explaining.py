"""Why a job is where it is, or waits: the answers behind `explain`, `plan` and `submit --dry-run`.

Built from the same problem a cycle would see, decided the same way; nothing is stored. A tenant
sees others only as totals.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from broker.control.books import copies_wanted
from broker.control.build_problem import Waiting, World
from broker.control.candidate_table import (
    Rooms,
    change_json,
    decision_json,
    job_rows,
    waiting_rows,
)
from broker.control.change_words import reason_words
from broker.control.endings import (
    Ending,
    RunTime,
    alternatives,
    ending,
    ends_json,
    more_nodes,
    on_more_nodes,
    run_time,
    start_of,
    wider,
)
from broker.control.imagined import Imagined, imagine
from broker.control.office import Office
from broker.control.policies import ruling_class
from broker.control.policy_book import PolicyBook
from broker.control.queue_place import Place, place_in
from broker.control.room import Line, ahead_of, rooms
from broker.control.sites import Sites
from broker.control.turn_advice import same_class, turns_in, waits_for_turn, with_turn
from broker.control.viewing import Viewer
from broker.decide.admission.turns import Turns
from broker.decide.explain import Explanation, explain_copy, explain_unplaced
from broker.feedback.decision_entries import DecisionDays
from broker.feedback.ports import FeedbackUnavailable, JobEntry, JobFilter, Ledger
from broker.model.jobs import Attempt, Job, JobPhase, OutcomeKind
from broker.model.plan import Plan
from broker.model.problem import Problem
from broker.sense.datasets import read_datasets
from broker.sense.fleet import read_tenants
from broker.state.projection import Projection
from federation.environment import Clock
from federation.ids import JobId, Tenant
from federation.jobs import JobSpec
from federation.runs import Runs

EARLIER_RUNS = 200
"""So many earlier jobs of a name are looked at for how long they ran."""
CALIBRATED_MS = 7 * 24 * 3600 * 1000
"""Of how many days predictions are looked at for how they came true."""
IMAGINED = JobId("j0000000000000000")


class Explainer:
    """Explains jobs of one replica."""

    def __init__(
        self,
        office: Office,
        projection: Projection,
        sites: Sites,
        ledger: Ledger,
        clock: Clock,
        typed_rtt_ms: Mapping[tuple[str, str], float],
    ) -> None:
        self._office = office
        self._projection = projection
        self._sites = sites
        self._ledger = ledger
        self._clock = clock
        self._typed = typed_rtt_ms
        self._policies = PolicyBook(projection)

    async def explain(self, job: Job, spec: JobSpec, viewer: Viewer) -> dict[str, Any]:
        """A job's receipt while it runs or has ended; what it waits for while it waits."""
        answer: dict[str, Any]
        if job.phase in (JobPhase.QUEUED, JobPhase.HELD):
            answer = await self._in_queue(job, spec) or await self._decide(job, spec)
            if job.awaits:
                answer["summary"] = f"{job.awaits_text}; then {answer['summary']}"
        else:
            answer = await self._receipt(job)
        answer.update(job=job.id, phase=job.phase.value)
        answer["summary"] = answer.get("summary") or _summary(job)
        answer["others"] = self._others(job, viewer)
        answer["moved"] = [*_moved(job), *self._office.let_go(job)]
        answer["prepared_in"] = self._office.prepared_in(job.id)
        if answer["waiting"]:
            answer["starts_unchanged"] = await self._unchanged(answer["waiting"])
        answer["ends"] = await self._ends_from_here(job, spec, answer)
        return answer

    async def _ends_from_here(
        self, job: Job, spec: JobSpec, answer: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """When a job that is there will have ended; None where nobody knows, or for arrays."""
        now_ms, runs = self._clock.now_ms(), await self._run_time(job, spec)
        if job.is_array or runs is None:
            return None
        if not job.live_attempts:
            return await self._ends(job, spec, answer, now_ms)
        attempt = job.live_attempts[-1]
        if not attempt.started_ms:
            return None
        ran_s = (now_ms - attempt.started_ms) / 1000
        start_s = (-ran_s, -ran_s)
        found = ending(start_s, runs, now_ms)
        found = Ending(max(found.usual_ms, now_ms), max(found.late_ms, now_ms))
        return ends_json(found, runs, spec.deadline_ms(job.created_ms))

    async def dry_run(self, spec: JobSpec, tenant: str, viewer: Viewer) -> dict[str, Any]:
        """What would be decided for this spec now."""
        now_ms = self._clock.now_ms()
        job = Job(
            id=IMAGINED,
            tenant=Tenant(tenant),
            name=spec.name or "",
            subject=viewer.subject,
            priority=spec.priority,
            class_key=ruling_class(self._policies.govern(spec), 24 * 3600),
            created_ms=now_ms,
            changed_ms=now_ms,
            tasks=spec.array.tasks if spec.array else Runs(),
        )
        answer = await self._decide(job, spec)
        answer["others"] = self._others(job, viewer)
        if answer["waiting"]:
            answer["starts_unchanged"] = await self._unchanged(answer["waiting"])
        answer["ends"] = await self._ends(job, spec, answer, now_ms)
        return answer

    async def _ends(
        self, job: Job, spec: JobSpec, answer: Mapping[str, Any], now_ms: int
    ) -> dict[str, Any] | None:
        """When a job of this answer will have ended, with what would end it sooner; None where
        nobody knows."""
        runs = await self._run_time(job, spec)
        near = [(start, row) for row in answer["candidates"] if (start := start_of(row))]
        row = answer["chosen"] or min(near, key=lambda pair: pair[0], default=(None, None))[1]
        if runs is None or row is None:
            return None
        start = start_of(row) or (0.0, 0.0)
        tasks = spec.array.tasks.count if spec.array else 1
        at_once = max(sum(each["copies"] for each in answer["candidates"]), 1)
        found = ending(start, runs, now_ms, tasks, at_once)
        more = [] if spec.array else alternatives(answer["candidates"], row, runs, now_ms)
        more += await self._on_more_nodes(job, spec, answer["chosen"], runs)
        if spec.array and spec.array.limit and spec.array.limit < tasks and answer["chosen"]:
            twice = replace(spec.array, limit=min(2 * spec.array.limit, tasks))
            wide = await self._decide(job, spec.model_copy(update={"array": twice}))
            copies = sum(other["copies"] for other in wide["candidates"])
            narrow = sum(other["copies"] for other in answer["candidates"])
            found = ending(start, runs, now_ms, tasks, narrow)
            if copies > narrow:
                more_usd = tasks * (_mean_usd(wide) - _mean_usd(answer))
                more.append(wider(ending(start, runs, now_ms, tasks, copies), copies, more_usd))
        return ends_json(found, runs, spec.deadline_ms(job.created_ms), more)

    async def _on_more_nodes(
        self, job: Job, spec: JobSpec, chosen: Mapping[str, Any] | None, runs: RunTime
    ) -> list[dict[str, Any]]:
        """What a gang with more nodes would do, decided again."""
        bigger = more_nodes(spec) if chosen is not None and spec.array is None else None
        if chosen is None or bigger is None:
            return []
        wide = (await self._decide(job, bigger[0]))["chosen"]
        nodes = bigger[0].resources.replicas - spec.resources.replicas
        if wide is None:
            return []
        more = nodes, bigger[1]
        return on_more_nodes(chosen, wide, runs, more, self._clock.now_ms())

    async def _run_time(self, job: Job, spec: JobSpec) -> RunTime | None:
        earlier: Sequence[JobEntry] = ()
        if job.name and spec.array is None:
            succeeded = frozenset({"succeeded"})
            query = JobFilter(
                tenant=job.tenant, name_prefix=job.name, outcomes=succeeded, limit=EARLIER_RUNS
            )
            try:
                earlier = (await self._ledger.jobs(query)).jobs
            except FeedbackUnavailable:
                earlier = ()
        return run_time(spec.model_copy(update={"name": job.name}), earlier)

    # A decision made for the answer -------------------------------------------------------------

    async def _decide(self, job: Job, spec: JobSpec) -> dict[str, Any]:
        world, ruling = self.world(), self._policies.govern(spec)
        limit = spec.array.limit if spec.array else None
        copies = max(copies_wanted(replace(job, held=False, awaits=()), limit), 1)
        one, term = Waiting.under(ruling, job, copies), self._office.term
        decide = self._office.decide
        found = await imagine(decide, term.admitting if term else None, world, one)
        room = await asyncio.to_thread(self._rooms, found.problem, found.plan, world)
        told = await asyncio.to_thread(_answer, found, one, world, room)
        return {**told, "policies": list(ruling.policies)}

    async def _in_queue(self, job: Job, spec: JobSpec) -> dict[str, Any] | None:
        """Where a job stands in the queue that the last cycle of this leader left; None where it
        did not look at it."""
        leading = self._office.leading()
        place = place_in(self._office.last_cycle, job.id) if leading else None
        if place is None:
            return None
        said_s, world, term = self._office.said_runtime_s, self.world(), self._office.term
        turns = turns_in(term.admitting, world, place) if term and waits_for_turn(place) else None
        told = await asyncio.to_thread(
            _answer_in_queue, (place, turns), world, said_s, spec
        )
        return {**told, "policies": list(place.cycle.policies.get(place.head, ()))}

    def _rooms(self, problem: Problem, plan: Plan, world: World) -> Rooms:
        """When one more job finds room behind the queue that the last cycle left."""
        job = problem.jobs[0]
        if not any(u.job == job.id for u in plan.unplaced):
            return {}
        attempts = [a for of_cluster in world.attempts.values() for a in of_cluster]
        last = self._office.last_cycle
        if last is not None and self._office.leading():
            queue = (last.problem, last.decided.plan)
        else:
            queue = (replace(problem, jobs=()), replace(plan, assignments=(), unplaced=()))
        line = Line(*queue, attempts, self._office.said_runtime_s, world.now_ms)
        return rooms(line, job, ahead_of(line, job, {}))

    async def _unchanged(self, waiting: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """When it starts if nothing changes, where room is all it waits for; with how such
        predictions came true in the last days."""
        near = [row for row in waiting if row["room_from_at"]]
        if not near:
            return None
        first = min(near, key=lambda row: (row["room_from_at"], row["room_until_at"]))
        to_ms = self._clock.now_ms() + 1
        try:
            days = await self._ledger.decision_days(to_ms - CALIBRATED_MS, to_ms)
        except FeedbackUnavailable:
            days = DecisionDays()
        made = [total for total in days.calibration if total.kind == "wait"]
        count = sum(total.predictions for total in made)
        return {
            "from_at": first["room_from_at"],
            "until_at": first["room_until_at"],
            "cluster": first["cluster"],
            "predictions": count,
            "within_from": sum(t.within_p50 for t in made) / count if count else None,
            "within_until": sum(t.within_p90 for t in made) / count if count else None,
        }

    def world(self) -> World:
        """The world at this instant, as this replica sees it."""
        attempts: dict[str, list[Attempt]] = {}
        for job in self._projection.jobs():
            for attempt in job.attempts:
                attempts.setdefault(attempt.cluster, []).append(attempt)
        return World(
            self._sites.fleet(),
            attempts,
            read_tenants(self._projection),
            self._clock.now_ms(),
            self._typed,
            self._office.starts.delays,
            self._office.starts.preemptions.snapshot(),
            self._office.links,
            read_datasets(self._projection),
            self._office.term.books.neighbours() if self._office.term else None,
        )

    # What was decided before --------------------------------------------------------------------

    async def _receipt(self, job: Job) -> dict[str, Any]:
        """The receipt of the latest attempt, as recorded by its cycle."""
        for entry in reversed(await self._ledger.receipts(job.id)):
            body = json.loads(entry.body_json)
            if "candidates" in body:
                return _without(body, "kind")
        return {
            "chosen": None,
            "candidates": [],
            "waiting": [],
            "smallest_change": None,
            "decision": None,
        }

    def _others(self, job: Job, viewer: Viewer) -> dict[str, int]:
        totals = {"accelerators_higher": 0, "accelerators_equal": 0, "accelerators_lower": 0}
        for other in self._projection.jobs():
            if other.id == job.id:
                continue
            held = sum(a.accelerators for a in other.live_attempts)
            if other.priority > job.priority:
                totals["accelerators_higher"] += held
            elif other.priority == job.priority:
                totals["accelerators_equal"] += held
            else:
                totals["accelerators_lower"] += held
        return totals


def _mean_usd(answer: Mapping[str, Any]) -> float:
    """USD of one copy on the average of those that are placed."""
    placed = [row for row in answer["candidates"] if row["copies"]]
    copies = sum(row["copies"] for row in placed)
    total = sum(row["copies"] * (row["total_usd"] or 0.0) for row in placed)
    return float(total / max(copies, 1))


def _without(body: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in body.items() if k != key}


def _moved(job: Job) -> list[str]:
    """From where, where to and why it moved, the first move first; the last may be under way."""
    told = []
    for attempt in job.attempts:
        over = attempt.outcome is not None and attempt.outcome.kind is OutcomeKind.MOVED
        if over or (attempt.live and attempt.stop_why is OutcomeKind.MOVED):
            told.append(f"{attempt.uid} {attempt.stop_text}")
    return told


def _summary(job: Job) -> str:
    live = job.counting_attempts
    if job.phase is JobPhase.ENDED and job.outcome is not None:
        return f"ended: {job.outcome.kind.value} {job.outcome.text}".strip()
    if live:
        where = ", ".join(f"{a.cluster} ({a.phase.value})" for a in live)
        unheard = [a for a in job.live_attempts if not a.counts]
        rest = "".join(f"; {a.uid} at {a.cluster} is superseded by it" for a in unheard)
        return f"{job.phase.value} on {where}{rest}"
    return job.reason_text or "waiting for its first decision"


def _answer(
    found: Imagined, waiting: Waiting, world: World, rooms: Rooms
) -> dict[str, Any]:
    """What a decision made for the answer says. `rooms`: where it is expected to find room."""
    problem, plan = found.problem, found.plan
    job = next(job for job in problem.jobs if job.id == waiting.job.id)
    rows = job_rows(problem, job, plan, world, (waiting.spec, rooms))
    waits: Explanation | None = None
    if any(u.job == job.id for u in plan.unplaced):
        waits = explain_unplaced(problem, plan, job.id)
    picked = next((row for row in rows if row["chosen"]), None)
    return {
        "chosen": picked,
        "candidates": rows,
        "waiting": waiting_rows(waits, job, rooms),
        "smallest_change": None if picked else change_json(waits, job),
        "decision": decision_json("", plan, world.now_ms, found.cpu_s),
        "admission": found.admission,
        "summary": f"would start on {picked['cluster']}" if picked else _why(plan, job.id),
    }


def _answer_in_queue(
    standing: tuple[Place, Turns | None],
    world: World,
    said_s: Callable[[str], int | None],
    spec: JobSpec,
) -> dict[str, Any]:
    """Why a job waits beside all that the last cycle decided, and when it will start. `standing`:
    its place, and where it waits for its turn the queue around it."""
    (place, turns), cycle, job = standing, standing[0].cycle, standing[0].job
    problem, plan = cycle.problem, cycle.decided.plan
    attempts = [a for of_cluster in world.attempts.values() for a in of_cluster]
    line = Line(problem, plan, attempts, said_s, world.now_ms)
    found = rooms(line, job, place.ahead(line))
    waits = explain_copy(problem, plan, job)
    if turns is not None:
        waits = with_turn(waits, turns, place.head)
    return {
        "chosen": None,
        "candidates": job_rows(problem, job, plan, world, (spec, found)),
        "waiting": waiting_rows(waits, job, found),
        "smallest_change": change_json(waits, job),
        "decision": decision_json(cycle.cycle, plan, cycle.started_ms, cycle.decided.cpu_s),
        "summary": _why(cycle.applier.plan, place.head),  # with what admission says of it
    }


def _why(plan: Plan, job_id: str) -> str:
    for unplaced in plan.unplaced:
        if same_class(unplaced.job, job_id):  # the reason nearest to a start
            return f"waits: {reason_words(unplaced.refusal.text)}"
    return "waits: no cluster has joined and reported yet"
