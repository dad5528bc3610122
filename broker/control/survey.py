"""A look at everything that waits, before a decision: what wants places now, and when more may."""

from __future__ import annotations

from collections.abc import Iterator

from broker.control.admitting import is_lost
from broker.control.books import Books, copies_wanted
from broker.control.build_problem import PLANNED_COPIES_MAX, Waiting
from broker.control.waitlist import WaitingClass

CYCLE_CLASSES_MAX = 25_000


def survey(books: Books, now_ms: int) -> tuple[list[Waiting], int | None]:
    """Jobs that want places now, by class, oldest first, bounded; and the first instant at
    which another one may (None: only when something happens)."""
    looking = Survey(books, now_ms)
    for _ in (*books.seating(), *looking.steps()):
        pass
    return looking.found, looking.due_ms


class Survey:
    """A look at all classes that wait. `found`: what wants places now, oldest first, bounded;
    `due_ms`: the first instant at which more may want some; `recovering`:
    gangs that ended against their will and may not start again yet."""

    def __init__(self, books: Books, now_ms: int) -> None:
        self._books = books
        self._now_ms = now_ms
        self.found: list[Waiting] = []
        self.recovering: list[Waiting] = []
        self.due_ms: int | None = None

    def steps(self) -> Iterator[None]:
        """Look at one class after the other, so that others may work in between."""
        for alike in self._books.waiting():
            self._look_at(alike)
            yield

    def _look_at(self, alike: WaitingClass) -> None:
        books, now_ms = self._books, self._now_ms
        members = alike.first(PLANNED_COPIES_MAX)
        if not members:  # they left while others worked
            return
        job, admitted = books.job(members[0]), books.admitted(members[0])
        if job is None or admitted is None:
            return
        for instant_ms in (job.not_before_ms, *(entry.until_ms for entry in job.avoid)):
            if instant_ms > now_ms:
                self.due_ms = min(self.due_ms or instant_ms, instant_ms)
        if job.not_before_ms > now_ms and is_lost(job):
            rules = admitted.rules
            self.recovering.append(Waiting(job, rules.spec, 1, rules, members[:1], alike))
        if job.not_before_ms > now_ms or len(self.found) == CYCLE_CLASSES_MAX:
            return
        if not job.is_array:
            rules = admitted.rules
            self.found.append(Waiting(job, rules.spec, len(members), rules, members, alike))
            return
        limit = admitted.spec.array.limit if admitted.spec.array else None
        copies = copies_wanted(job, limit)
        if copies > 0:
            self.found.append(Waiting.under(admitted.rules, job, copies))
