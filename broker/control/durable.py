"""Making a round durable: group commits under the guard of the epoch, waited out, contained.

The order is part of the promise: what events changed is durable before the event counter that
lets a site forget them, and that is durable before anything is acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from broker.control.books import Books
from broker.control.leadership import Leadership, LeadershipLost
from broker.control.round import Round, writes_of
from broker.control.steps import in_steps
from broker.model.jobs import Job
from broker.state import keys
from broker.state.group_commit import GroupCommitter, GuardFailed
from broker.state.projection import Projection
from federation.ids import JobId
from federation.kv import (
    AmbiguousCommit,
    InvalidRequest,
    Op,
    Put,
    RequestTooLarge,
    StoreError,
    StoreUnavailable,
    Txn,
    TxnResult,
)
from federation.wire import records as pb

RETRY_S = 0.1
Answer = TxnResult | StoreError
"""What became of one transaction; an error is final: the store will never take it."""


class Durable:
    """Commits rounds of one leadership and installs them in the books."""

    def __init__(
        self,
        leadership: Leadership,
        committer: GroupCommitter,
        books: Books,
        projection: Projection,
    ) -> None:
        self._leadership = leadership
        self._committer = committer
        self._books = books
        self._projection = projection
        self.beaten: list[JobId] = []

    async def jobs(self, round_: Round) -> list[tuple[Job, Job]]:
        """Commit what a round changed; returns (before, after) of every job that changed.

        A launch that was beaten by an intent is left out, and its job noted in `beaten`. A change
        that can never be stored is left out, and its job set aside. Raises `LeadershipLost`.
        """
        seqs = _seq_writes(round_.dispatch_seqs, keys.dispatch_seq)
        pieces = await self._writes(round_)
        leading = [txn for txns in pieces.values() for txn in txns[:-1]]
        if leading:
            answers = await self._commit([*seqs, *leading])
            self._drop_refused(round_, pieces, answers[len(seqs) :])
            seqs = []
        final = {job_id: txns[-1] for job_id, txns in pieces.items()}
        answers = await self._commit([*seqs, *final.values()])
        self._books.dispatch_seqs.update(round_.dispatch_seqs)
        return await self._take_in(round_, pieces, answers[len(seqs) :])

    async def acks(self, round_: Round) -> None:
        """Commit the event counters of a durable round. Raises `LeadershipLost`."""
        await self._commit(_seq_writes(round_.acks, keys.event_seq))
        self._books.event_seqs.update(round_.acks)

    async def _writes(self, round_: Round) -> dict[JobId, tuple[Txn, ...]]:
        found: dict[JobId, tuple[Txn, ...]] = {}
        async for job in in_steps(list(round_.draft.changed.values())):
            guarded = job.id in round_.guarded
            revision = self._books.intents.get(job.id, 0) if guarded else None
            try:
                txns = writes_of(self._books.job(job.id), job, revision)
            except (ValueError, TypeError, OverflowError) as error:  # a record that has no bytes
                self._set_aside(round_, job.id, repr(error))
                continue
            found[job.id] = txns
            for txn in txns:
                self._projection.expect(txn.then, job)
        return found

    def _drop_refused(
        self,
        round_: Round,
        pieces: dict[JobId, tuple[Txn, ...]],
        answers: Sequence[Answer],
    ) -> None:
        owners = [job_id for job_id, txns in pieces.items() for _ in txns[:-1]]
        for job_id, answer in zip(owners, answers, strict=True):
            if isinstance(answer, StoreError) and job_id in pieces:
                del pieces[job_id]
                self._set_aside(round_, job_id, str(answer))

    async def _take_in(
        self,
        round_: Round,
        pieces: Mapping[JobId, tuple[Txn, ...]],
        answers: Sequence[Answer],
    ) -> list[tuple[Job, Job]]:
        changed: list[tuple[Job, Job]] = []
        beaten: list[JobId] = []
        answered = zip(pieces.items(), answers, strict=True)
        async for (job_id, txns), answer in in_steps(answered):
            if isinstance(answer, StoreError):
                self._set_aside(round_, job_id, str(answer))
            elif answer.succeeded or _stored_already(txns[-1], answer):
                after = round_.draft.changed[job_id]
                changed.append((self._books.job(job_id) or after, after))
                for txn in txns:
                    self._projection.fold_own(answer.revision, txn.then)
            else:
                beaten.append(job_id)
        self._books.install(after for _, after in changed)
        for job_id in beaten:
            round_.commands.pop(job_id, None)
            again = round_.without_placement(job_id)
            changed.extend(await self.jobs(again))
            round_.commands.update(again.commands)
            round_.faults.extend(again.faults)
        self.beaten.extend(beaten)
        return changed

    def _set_aside(self, round_: Round, job_id: JobId, why: str) -> None:
        self._books.set_aside(job_id, why)
        round_.leave_out(job_id, why)

    async def _commit(self, items: Sequence[Txn]) -> list[Answer]:
        """Commit all, waiting etcd out. Repeating is safe: all are absolute writes of the only
        writer, guarded by its epoch."""
        answers: dict[int, Answer] = {}
        while len(answers) < len(items):
            self._leadership.require()
            missing = [index for index in range(len(items)) if index not in answers]
            waiting = [
                self._committer.enqueue(items[index]) async for index in in_steps(missing)
            ]
            results = await asyncio.gather(*waiting, return_exceptions=True)
            for index, result in zip(missing, results, strict=True):
                answer = _judged(result)
                if answer is not None:
                    answers[index] = answer
            if len(answers) < len(items):
                await asyncio.sleep(RETRY_S)
        return [answers[index] for index in range(len(items))]


def _judged(result: TxnResult | BaseException) -> Answer | None:
    """The answer, None to try again. Raises what ends the leadership."""
    if isinstance(result, TxnResult | RequestTooLarge | InvalidRequest):
        return result
    if isinstance(result, GuardFailed):
        raise LeadershipLost(str(result)) from result
    if isinstance(result, StoreUnavailable | AmbiguousCommit):
        return None
    raise result


def _seq_writes(seqs: Mapping[str, int], key: Callable[[str], str]) -> list[Txn]:
    return [
        Txn(then=(Put(key(cluster), pb.SeqRecord(schema=1, seq=seq).SerializeToString()),))
        for cluster, seq in seqs.items()
    ]


def _stored_already(txn: Txn, result: TxnResult) -> bool:
    """Whether a change that 'failed' is what lies there: an earlier try of ours was applied."""
    ours: Op = txn.then[0]
    found = result.results[0].kv if result.results else None
    return isinstance(ours, Put) and found is not None and found.value == ours.value
