"""Commands to sites as the leader gives them: each with a ticket signed for this sending."""

from __future__ import annotations

from collections.abc import Callable

from broker.act.gateway import Command, Dispatch, Prepare, SetSlice, Stop
from broker.control.books import Books
from broker.control.leadership import Leadership
from broker.lifecycle.reconcile import Need, Needed
from broker.model.jobs import Attempt, Job, OutcomeKind
from federation.environment import Clock
from federation.ids import prepare_uid
from federation.tickets import Ticket, TicketSigner, sign_ticket

TICKET_LIFE_MS = 10 * 60 * 1000


class Orders:
    """Turns what a site needs to hear into commands under the present epoch."""

    def __init__(
        self,
        books: Books,
        leadership: Leadership,
        clock: Clock,
        signer: TicketSigner,
        traceparent: Callable[[str, str, str], str],
    ) -> None:
        """`traceparent`: the context for an attempt, given uid, job and what the job came with."""
        self._traceparent = traceparent
        self.books = books
        self._leadership = leadership
        self._clock = clock
        self._signer = signer

    def command(self, need: Need) -> Command | None:
        """The command; None for a job whose spec is not trusted."""
        a = need.attempt
        if need.what is Needed.STOP:
            why = a.stop_why or OutcomeKind.CANCELLED
            return Stop(a.uid, why.value, a.stop_grace_s, a.stop_unless_started)
        if need.what is Needed.SET_SLICE:
            return SetSlice(a.dispatch_seq, a.uid, a.tasks, a.width)
        admitted = self.books.admitted(a.job)
        if admitted is None:
            return None
        return Dispatch(
            dispatch_seq=a.first_seq,
            uid=a.uid,
            ticket=self.ticket(a, admitted.digest, admitted.subject),
            spec=admitted.raw,
            pool=a.pool,
            accelerator=a.accelerator,
            replicas=a.replicas,
            accelerators_per_replica=a.accelerators_per_replica,
            cpus_milli_per_replica=a.cpus_milli_per_replica,
            memory_bytes_per_replica=a.memory_bytes_per_replica,
            max_runtime_s=a.max_runtime_s,
            stop_grace_s=a.stop_grace_s,
            max_start_delay_s=admitted.terms.max_start_delay_s,
            tasks=a.tasks,
            width=a.width,
            traceparent=self._traceparent(a.uid, a.job, admitted.traceparent),
            adopt_only=need.what is Needed.ADOPT,
            fence_after_s=a.fence_after_s,
            queued=a.queued,
            parts=a.parts,
        )

    def prepare(self, job: Job, cluster: str) -> Prepare | None:
        """Fetch ahead for a job that waits: its ticket is for attempt 0, which is none. None
        for a job whose spec is not trusted."""
        admitted = self.books.admitted(job.id)
        if admitted is None:
            return None
        uid = prepare_uid(job.id)
        signed = self._sign(uid, job, cluster, admitted.digest, admitted.subject)
        return Prepare(uid, signed, admitted.raw)

    def ticket(self, attempt: Attempt, digest: str, subject: str) -> bytes:
        """Permission for this attempt under the present epoch; made anew for every sending, so
        that one re-driven late is never too old."""
        return self._sign(attempt.uid, attempt, attempt.cluster, digest, subject)

    def _sign(
        self, uid: str, of: Job | Attempt, cluster: str, digest: str, subject: str
    ) -> bytes:
        return sign_ticket(
            Ticket(
                uid=uid,
                job=of.id if isinstance(of, Job) else of.job,
                epoch=self._leadership.epoch,
                cluster=cluster,
                tenant=of.tenant,
                subject=subject,
                spec_sha256=digest,
                not_after_ms=self._clock.now_ms() + TICKET_LIFE_MS,
            ),
            self._signer,
        )
