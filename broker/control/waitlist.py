"""The jobs that wait, by class: jobs alike in all that decides are one entry with many members.

A cycle costs by classes, not by jobs: ten thousand runs of a sweep that wait are looked at once.
What decides is all of a job but what it is called and what it runs, so whatever is added to the
format later decides too, until somebody says that it does not. Run times and deadlines count in
steps: jobs that differ by little are planned as one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from broker.control.cold_start import blobs_of
from broker.model.jobs import Job
from broker.model.policies import Ruling
from federation.ids import JobId
from federation.jobs import JobSpec, runtime_bucket_s

_NOT_DECIDING = {
    "name", "run", "command", "env", "secrets", "labels", "outputs", "retry", "priority",
    "files", "workdir", "movable",
}  # fmt: skip
_IN_STEPS = {"deadline", "expected_runtime_s", "max_runtime_s"}

_DAY_S = 24 * 3600
_DEADLINE_STEPS_MS = (900_000, 300_000, 60_000, 15_000, 5_000, 1_000)
_DEADLINE_SHARE = 50
"""A step is at most this part of the time from the submission to the deadline."""

PARTS_MAX = 1_000
Age = tuple[int, JobId]
Reason = tuple[str, str]
"""Why a job waits: code, text."""
UNTOLD: Reason = ("", "")


def alike(job: Job, ruling: Ruling, watched: frozenset[str] = frozenset()) -> Hashable:
    """Equal for jobs that a decision need not tell apart. An array is like nothing else, a job
    on its way to another place like no other: that is kept for it alone; and nodes of their own are
    those of one job. `watched`: labels by which
    other jobs keep apart."""
    spec = ruling.spec
    return (
        job.id if job.is_array or job.moves or spec.apart_on_nodes else "",
        job.tenant,
        job.priority,
        job.avoid,
        job.not_before_ms,
        job.made_room,
        planned_deadline_ms(spec, job.created_ms) if spec.deadline is not None else None,
        _deciding_part(spec),
        ruling.policies,
        tuple(sorted(ruling.origins.items())) if ruling.origins else (),
        ruling.round_trips,
        ruling.latency_usd_per_ms,
        ruling.conflicts,
        tuple((key, spec.labels[key]) for key in sorted(watched) if key in spec.labels)
        if watched
        else (),
    )


def planned_deadline_ms(spec: JobSpec, created_ms: int) -> int | None:
    """The deadline that the class of a job is planned with, in UTC epoch ms: never later than its
    own, and earlier by less than a fiftieth of the time it has, and than a quarter of an hour."""
    at_ms = spec.deadline_ms(created_ms)
    if at_ms is None:
        return None
    most_ms = (at_ms - created_ms) // _DEADLINE_SHARE
    step_ms = next((step for step in _DEADLINE_STEPS_MS if step <= most_ms), 1)
    return at_ms // step_ms * step_ms


def planned_runtime_s(spec: JobSpec) -> int:
    """The run time that the class of a job is planned with: in steps of 10 %, rounded up; exact
    where a budget or a deadline depends on it."""
    exact_s = expected_s(spec)
    tied = spec.deadline is not None or spec.placement.budget_micro_usd is not None
    return exact_s if tied else runtime_bucket_s(exact_s)


def expected_s(spec: JobSpec) -> int:
    """How long a job is expected to run, as far as it says."""
    return spec.expected_runtime_s or spec.max_runtime_s or _DAY_S


_deciding = attrgetter(
    *(name for name in JobSpec.model_fields if name not in _NOT_DECIDING), "files", "workdir"
)
_parts: dict[tuple[int, ...], tuple[object, Hashable]] = {}
"""By the identities of the values that decide: the jobs of a sweep share them. The values are kept
with the part, so that no other can come to have their identity."""


def _deciding_part(spec: JobSpec) -> Hashable:
    """What of a class is said by its spec."""
    values = _deciding(spec)
    key = tuple(map(id, values))
    known = _parts.get(key)
    if known is None:
        if len(_parts) >= PARTS_MAX:
            _parts.clear()
        part = (
            planned_runtime_s(spec),
            runtime_bucket_s(spec.max_runtime_s or _DAY_S),
            spec.model_dump_json(exclude=_NOT_DECIDING | _IN_STEPS, exclude_defaults=True),
            tuple(sorted(blobs_of(spec).items())),
        )
        known = _parts[key] = values, part
    return known[1]


@dataclass(slots=True)
class WaitingClass:
    """Jobs alike. `by_reason`: by the code of the reason its members were last told; `told`: why
    the last plan left some of them waiting."""

    key: Hashable
    told: Reason = UNTOLD
    by_reason: dict[str, dict[JobId, None]] = field(default_factory=dict)
    _ages: list[Age] = field(default_factory=list)
    """In order: jobs come nearly in the order of their age, and the oldest leave first."""

    def __len__(self) -> int:
        return len(self._ages)

    def first(self, count: int) -> tuple[JobId, ...]:
        """So many of its members at most, the oldest first, then by id."""
        return tuple([job for _, job in self._ages[:count]])

    def oldest(self) -> Age:
        """Age of its oldest member."""
        return self._ages[0]

    def untold(self, code: str) -> list[JobId]:
        """Members that were last told another reason."""
        return [job for told, jobs in self.by_reason.items() if told != code for job in jobs]

    def add(self, job: Job) -> None:
        """Take a job in."""
        insort(self._ages, (job.created_ms, job.id))
        self.by_reason.setdefault(job.reason_code, {})[job.id] = None

    def remove(self, age: Age, reason_code: str) -> None:
        """Let a job go, which was told this reason."""
        del self._ages[bisect_left(self._ages, age)]
        told = self.by_reason[reason_code]
        del told[age[1]]
        if not told:
            del self.by_reason[reason_code]


class Waitlist:
    """All classes of jobs that wait."""

    def __init__(self) -> None:
        self._classes: dict[Hashable, WaitingClass] = {}
        self._seats: dict[JobId, tuple[WaitingClass, Age, str]] = {}

    def seat(self, job: Job, key: Hashable) -> None:
        """A job waits under this key, wherever it was before."""
        self.leave(job.id)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = WaitingClass(key)
        found.add(job)
        self._seats[job.id] = found, (job.created_ms, job.id), job.reason_code

    def leave(self, job: JobId) -> None:
        """A job waits no more."""
        seat = self._seats.pop(job, None)
        if seat is None:
            return
        found, age, reason_code = seat
        found.remove(age, reason_code)
        if not found:
            del self._classes[found.key]

    def told(self, key: Hashable) -> Reason:
        """Why jobs under this key wait, as last decided; `UNTOLD` where none does."""
        found = self._classes.get(key)
        return found.told if found else UNTOLD

    def classes(self) -> Iterator[WaitingClass]:
        """The classes, in the order of their oldest members."""
        return iter(sorted(self._classes.values(), key=WaitingClass.oldest))
