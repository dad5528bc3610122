"""What follows from rounds once they are durable: told to the closer, and to the observer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.control.books import Books
from broker.control.closer import Closer
from broker.control.observing import Observer
from broker.control.start_book import StartBook
from broker.control.wait_book import WaitBook
from broker.feedback.ports import LedgerBatch
from broker.lifecycle.commands import Audit
from broker.model.jobs import Attempt, Job


@dataclass(frozen=True, slots=True)
class Watched:
    """Consequences of durable rounds: to the closer, and told to the observer."""

    books: Books
    closer: Closer
    observer: Observer
    starts: StartBook
    waits: WaitBook

    def traceparent(self, job: str) -> str:
        """The trace context a job was submitted with; empty for none."""
        admitted = self.books.admitted(job)
        return admitted.traceparent if admitted else ""

    def audit(self, audits: Sequence[Audit]) -> None:
        """Transitions."""
        self.closer.audit(audits)
        self.observer.transitions(audits, self._attempt)

    def _attempt(self, uid: str) -> Attempt | None:
        job = self.books.job_of(uid)
        return job.attempt(uid) if job else None

    def close_attempt(self, job: Job, attempt: Attempt) -> None:
        """An attempt ended."""
        self.closer.close_attempt(job, attempt)
        self.starts.ended(attempt)
        came_true = self.waits.ended(job, attempt)
        if came_true is not None:
            self.closer.add(LedgerBatch(predictions=(came_true,)))
        self.observer.attempt_ended(job, attempt, self.traceparent(job.id))

    def close_job(self, job: Job) -> None:
        """A job ended."""
        self.closer.close_job(job)
        self.observer.job_ended(job, self.traceparent(job.id))
