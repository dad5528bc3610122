"""The jobs that wait, by class: jobs alike in all that decides are one entry with many members.

A cycle costs by classes, not by jobs: ten thousand runs of a sweep that wait are looked at once.
What decides is all of a job but what it is called and what it runs, so whatever is added to the
format later decides too, until somebody says that it does not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from broker.control.cold_start import blobs_of
from broker.model.jobs import Job
from broker.model.policies import Ruling
from federation.ids import JobId
from federation.jobs import JobSpec

_NOT_DECIDING = {
    "name", "run", "command", "env", "secrets", "labels", "outputs", "retry", "priority",
    "files", "workdir",
}  # fmt: skip

TEXTS_MAX = 1_000
Age = tuple[int, JobId]


def alike(job: Job, ruling: Ruling) -> Hashable:
    """Equal for jobs that a decision need not tell apart. An array is like nothing else."""
    spec = ruling.spec
    return (
        job.id if job.is_array else "",
        job.tenant,
        job.priority,
        job.avoid,
        job.not_before_ms,
        spec.deadline_ms(job.created_ms),
        _deciding_text(spec),
        tuple(sorted(blobs_of(spec).items())),
        ruling.policies,
        tuple(sorted(ruling.origins.items())),
        ruling.round_trips,
        ruling.latency_usd_per_ms,
        ruling.conflicts,
    )


_deciding = attrgetter(*(name for name in JobSpec.model_fields if name not in _NOT_DECIDING))
_texts: dict[tuple[int, ...], tuple[object, str]] = {}
"""By the identities of the values that decide: the jobs of a sweep share them. The values are kept
with the text, so that no other can come to have their identity."""


def _deciding_text(spec: JobSpec) -> str:
    values = _deciding(spec)
    key = tuple(map(id, values))
    known = _texts.get(key)
    if known is None:
        if len(_texts) >= TEXTS_MAX:
            _texts.clear()
        text = spec.model_dump_json(exclude=_NOT_DECIDING, exclude_defaults=True)
        known = _texts[key] = values, text
    return known[1]


@dataclass(slots=True)
class WaitingClass:
    """Jobs alike. `by_reason`: by the code of the reason its members were last told."""

    key: Hashable
    by_reason: dict[str, dict[JobId, None]] = field(default_factory=dict)
    _ages: dict[JobId, Age] = field(default_factory=dict)
    _youngest: Age = (0, JobId(""))
    _in_order: bool = True

    def __len__(self) -> int:
        return len(self._ages)

    def ids(self) -> tuple[JobId, ...]:
        """Its members, the oldest first, then by id."""
        if not self._in_order:
            self._ages = dict(sorted(self._ages.items(), key=lambda item: item[1]))
            self._in_order = True
        return tuple(self._ages)

    def oldest(self) -> Age:
        """Age of its oldest member."""
        if not self._in_order:
            self.ids()
        return next(iter(self._ages.values()))

    def untold(self, code: str) -> list[JobId]:
        """Members that were last told another reason."""
        return [job for told, jobs in self.by_reason.items() if told != code for job in jobs]

    def add(self, job: Job) -> None:
        """Take a job in."""
        age = (job.created_ms, job.id)
        self._in_order = self._in_order and age > self._youngest
        self._youngest = max(self._youngest, age)
        self._ages[job.id] = age
        self.by_reason.setdefault(job.reason_code, {})[job.id] = None

    def remove(self, job: JobId, reason_code: str) -> None:
        """Let a job go, which was told this reason."""
        del self._ages[job]
        told = self.by_reason[reason_code]
        del told[job]
        if not told:
            del self.by_reason[reason_code]


class Waitlist:
    """All classes of jobs that wait."""

    def __init__(self) -> None:
        self._classes: dict[Hashable, WaitingClass] = {}
        self._seats: dict[JobId, tuple[WaitingClass, str]] = {}

    def seat(self, job: Job, key: Hashable) -> None:
        """A job waits under this key, wherever it was before."""
        self.leave(job.id)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = WaitingClass(key)
        found.add(job)
        self._seats[job.id] = found, job.reason_code

    def leave(self, job: JobId) -> None:
        """A job waits no more."""
        seat = self._seats.pop(job, None)
        if seat is None:
            return
        found, reason_code = seat
        found.remove(job, reason_code)
        if not found:
            del self._classes[found.key]

    def classes(self) -> Iterator[WaitingClass]:
        """The classes, in the order of their oldest members."""
        return iter(sorted(self._classes.values(), key=WaitingClass.oldest))
