"""Following attempts at a batch system: what the nodes did, the queue, the books, the stops.

Claims and marks are looked at often, because that costs the batch system nothing; the queue
every `poll_s`, or sooner when something is expected of it, but never more than a twentieth of the
time it takes to answer. One call serves all attempts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from federation.environment import Clock
from federation.runs import Runs
from regional_agent.act.schedulers.batch import shelf
from regional_agent.act.schedulers.batch.attempt import Attempt, TaskEnd
from regional_agent.act.schedulers.batch.deadlines import Deadlines
from regional_agent.act.schedulers.batch.judging import (
    brief,
    called,
    copy_ended,
    expects,
    is_over,
    tag_of,
    unmarked,
)
from regional_agent.act.schedulers.batch.parts import Part
from regional_agent.act.schedulers.batch.system import Account, BatchSystem, Live, Queued, Traits
from regional_agent.act.schedulers.port import Outcome, OutcomeKind, SchedulerUnavailable

SHARE_OF_TIME = 20
KILL_AFTER_S = 5.0
REIN_IN_S = 10.0
CALLED_OFF = (
    OutcomeKind.FENCED,
    OutcomeKind.CANCELLED,
    OutcomeKind.PREEMPTED,
    OutcomeKind.LOST,
    OutcomeKind.TIMED_OUT,
    OutcomeKind.OUT_OF_MEMORY,
)
NOT_SEEN = "nobody saw its end"
DELETED = "ended at the site, not by the broker"
REQUEUED = "the site put it back into its queue; the second copy does not run"
NOT_FOLLOWED = "the batch system cannot be followed: %s"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often what is looked at, in seconds. `gone_s`: how long a job may be missing from
    queue and books before it is lost. `account_s`: how long an end waits for what it used."""

    look_s: float = 0.5
    poll_s: float = 30.0
    soon_s: float = 2.0
    gone_s: float = 60.0
    account_s: float = 10.0


class Follower:
    """Keeps `attempts` as they are at the site; `told` hears of every change."""

    def __init__(
        self,
        system: BatchSystem,
        pace: Pace,
        clock: Clock,
        told: Callable[[Attempt], None],
        deadlines: Deadlines,
    ) -> None:
        self._system = system
        self._pace = pace
        self._clock = clock
        self._told = told
        self._deadlines = deadlines
        self._woken = asyncio.Event()
        self._polled_s = float("-inf")
        self._gap_s = pace.soon_s
        self._reined_s = 0.0
        self._copies: list[tuple[str, Runs | None]] = []
        self.traits: Traits | None = None
        self.attempts: dict[str, Attempt] = {}

    def wake(self) -> None:
        """Look at once."""
        self._woken.set()

    def hurry(self) -> None:
        """Look at the queue with the next look, whatever its time."""
        self._polled_s = float("-inf")

    async def run(self) -> None:
        """For ever; a batch system that does not answer is asked again."""
        silent = False
        while True:
            try:
                await self.step()
                silent = False
            except Exception as problem:  # noqa: BLE001  if this ended, no attempt ever would
                if not silent:
                    known = isinstance(problem, SchedulerUnavailable | OSError)
                    _log.warning(NOT_FOLLOWED, problem, exc_info=not known)
                silent = True
            rest_s = self._pace.look_s if self.live else None  # a new one wakes it
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_s):  # wait_for may swallow a cancel
                    await self._woken.wait()
            self._woken.clear()

    @property
    def live(self) -> list[Attempt]:
        """Attempts that have not ended."""
        return [a for a in self.attempts.values() if a.outcome is None]

    async def step(self) -> None:
        """Look at everything once."""
        live = self.live
        if not live:
            return
        await self.scan(live)
        await self._deadlines.look(live)
        now_s = asyncio.get_running_loop().time()
        await self._stop_cancelled(live, now_s)
        if self._due(live, now_s):
            await self._poll(live)
        await self._settle(live)
        await self._widen(live)
        if now_s - self._reined_s > REIN_IN_S:
            self._reined_s = now_s
            await asyncio.to_thread(shelf.rein_in, live)

    async def scan(self, attempts: Collection[Attempt]) -> None:
        """What the scripts did since the last look."""
        for attempt in await asyncio.to_thread(lambda: [a for a in attempts if a.scan()]):
            self._told(attempt)

    # The queue and the books --------------------------------------------------------------------

    def _due(self, live: Iterable[Attempt], now_s: float) -> bool:
        since_s = now_s - self._polled_s
        if since_s >= self._pace.poll_s:
            return True
        return since_s >= self._gap_s and any(expects(a) for a in live)

    async def _poll(self, live: Collection[Attempt]) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        claimed = {a.uid: a.settled(self._clock.now_ms()) for a in live}
        rows = await self._system.queue()
        await self.scan(live)  # what ended before the queue was read has its marks now
        by_id: dict[str, list[Queued]] = defaultdict(list)
        tags: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            for name in called(row):
                by_id[name].append(row)
            tags[row.tag].add(row.local_id)
        asked: set[str] = set()
        for attempt in live:
            await self._own(attempt, tags)
            asked |= self._queue_says(attempt, by_id, began_s, claimed[attempt.uid])
        for local_id, indices in self._copies:
            await self._system.remove(local_id, indices)
        self._copies.clear()
        accounts = await self._system.books(asked) if asked else ()
        by_part: dict[str, dict[int, Account]] = defaultdict(dict)
        for account in accounts:
            by_part[account.local_id][account.index] = account
        for attempt in live:
            self._books_say(attempt, by_part, loop.time())
        took_s = loop.time() - began_s
        self._polled_s = loop.time()
        self._gap_s = max(self._pace.soon_s, SHARE_OF_TIME * took_s)

    async def _own(self, attempt: Attempt, tags: dict[str, set[str]]) -> None:
        """A copy of a job that is in the queue beside the one we know: it would exit unrun."""
        for part in attempt.parts:
            for local_id in tags.get(tag_of(attempt, part), set()) - {part.local_id}:
                if part.local_id:
                    _log.warning("%s: removing %s, a second copy", attempt.uid, local_id)
                    await self._system.remove(local_id)
                elif attempt.cancel is not None:
                    part.local_id = local_id

    def _queue_says(
        self, attempt: Attempt, rows: dict[str, list[Queued]], began_s: float, claimed: Runs
    ) -> set[str]:
        """Local ids to be looked up in the books."""
        there, waits = self._in_queue(attempt, rows, began_s, claimed)
        sure = Runs.of((t, t) for t, end in attempt.ends.items() if end.sure)
        asked: set[str] = set()
        for part in attempt.parts:
            if not part.local_id or part.submitted_s >= began_s:
                continue
            missing = part.tasks.intersection(attempt.tasks).difference(there).difference(sure)
            for task in missing:
                attempt.gone_since_s.setdefault(task, began_s)
            for task in [t for t in attempt.gone_since_s if t in there]:
                del attempt.gone_since_s[task]
            if missing or self._wants_account(attempt, began_s):
                asked.add(part.local_id)
        if waits != attempt.detail and attempt.cancel is None and attempt.outcome is None:
            attempt.detail = waits if not attempt.ends else attempt.detail
        return asked

    def _in_queue(
        self, attempt: Attempt, rows: dict[str, list[Queued]], began_s: float, claimed: Runs
    ) -> tuple[Runs, str]:
        """Tasks that are in the queue, and what those wait for that do not run."""
        there, waits, gone = Runs(), "", True
        for part in attempt.parts:
            if not part.local_id or part.submitted_s >= began_s:
                age_ms = self._clock.now_ms() - part.intended_ms
                gone &= not part.intended_ms or age_ms > self._pace.gone_s * 1000
                continue
            for row in rows.get(part.called, ()):
                tasks = part.tasks_of(row.indices)
                there, gone = there.union(tasks), False
                waits = row.text if row.live is not Live.RUNNING else waits
                if row.live is Live.PENDING and claimed:
                    self._requeued(attempt, part, row, tasks.intersection(claimed))
        attempt.left_queue = gone
        return there, waits

    def _requeued(self, attempt: Attempt, part: Part, row: Queued, tasks: Runs) -> None:
        """Tasks that had begun before the queue was read, and wait in it."""
        again = [t for t in tasks if t not in attempt.ends or not attempt.ends[t].sure]
        for task in again:
            self._end(attempt, task, Outcome(OutcomeKind.PREEMPTED), REQUEUED)
        if again:
            copies = part.indices_of(Runs.of((task, task) for task in again))
            single = attempt.order.tasks is None and not part.pack
            self._copies.append((row.local_id, None if single else copies))

    def _books_say(
        self, attempt: Attempt, books: dict[str, dict[int, Account]], now_s: float
    ) -> None:
        known: dict[int, Account] = {}
        for part in attempt.parts:
            of_part = books.get(part.local_id)
            if not of_part:
                continue
            for index, task in zip(part.indices, part.tasks, strict=True):
                if index in of_part:
                    known[task] = of_part[index]
        for task, since_s in list(attempt.gone_since_s.items()):
            self._gone(attempt, task, known.get(task), now_s - since_s)
        ended = attempt.ended
        attempt.accounted = bool(ended) and all(
            task in known and known[task].outcome for task in ended
        )
        for task in ended:
            end, account = attempt.ends[task], known.get(task)
            if account is not None and account.outcome is not None:
                attempt.ends[task] = replace(
                    end,
                    wall_ms=end.wall_ms or max(0, account.ended_ms - account.started_ms),
                    cpu_ms=max(end.cpu_ms, account.cpu_ms),
                    max_rss_bytes=max(end.max_rss_bytes, account.max_rss_bytes),
                )

    def _gone(
        self, attempt: Attempt, task: int, account: Account | None, missing_s: float
    ) -> None:
        """A task that is in the queue no more, and whose end is not sure."""
        mark = attempt.ends.get(task)
        if mark is not None and mark.sure:
            del attempt.gone_since_s[task]
            return
        if attempt.cancel is not None:
            if task in attempt.claims:
                self._end(attempt, task, attempt.called_off, attempt.detail)
            return
        assert self.traits is not None, "known before anything is followed"
        if mark is not None and mark.stopped and self.traits.stopped_is_cancelled:
            self._end(attempt, task, Outcome(OutcomeKind.CANCELLED), DELETED)
            return
        if account is not None and account.outcome is not None:
            said = account.outcome
            if mark is not None and copy_ended(mark, said):
                self._end(attempt, task, Outcome(OutcomeKind.PREEMPTED), REQUEUED)
                return
            if mark is not None and said.kind not in CALLED_OFF:
                said = mark.outcome
            elif mark is None and said.kind not in CALLED_OFF:
                said = unmarked(said, begun=task in attempt.claims)
            text = account.text if said.kind in CALLED_OFF else ""
            self._end(attempt, task, said, text or NOT_SEEN, account.ended_ms)
            return
        patience_s = self._pace.gone_s * (10 if account is not None else 1)
        if missing_s > patience_s:
            lost = mark.outcome if mark is not None else Outcome(OutcomeKind.LOST)
            self._end(attempt, task, lost, f"the batch system does not know it: {NOT_SEEN}")

    def _end(
        self, attempt: Attempt, task: int, outcome: Outcome, text: str, at_ms: int = 0
    ) -> None:
        mark = attempt.ends.get(task)
        now_ms = self._clock.now_ms()
        wall_ms = max(0, (at_ms or now_ms) - attempt.claims[task]) if task in attempt.claims else 0
        attempt.ends[task] = TaskEnd(
            outcome,
            mark.ended_ms if mark else at_ms or now_ms,
            mark.wall_ms if mark else wall_ms,
            mark.cpu_ms if mark else 0,
        )
        attempt.gone_since_s.pop(task, None)
        if outcome.kind in CALLED_OFF and text:
            attempt.detail = text
        self._told(attempt)

    # Ends -------------------------------------------------------------------------------------

    def _wants_account(self, attempt: Attempt, now_s: float) -> bool:
        """Whether its end waits for nothing but what it used."""
        assert self.traits is not None, "known before anything is followed"
        if not self.traits.books or attempt.accounted or not is_over(attempt) or brief(attempt):
            return False
        attempt.over_s = attempt.over_s or now_s
        return now_s - attempt.over_s < self._pace.account_s

    async def _settle(self, live: Iterable[Attempt]) -> None:
        now_s = asyncio.get_running_loop().time()
        over = [
            a for a in live
            if a.outcome is None and is_over(a) and not (a.claims and self._wants_account(a, now_s))
        ]  # fmt: skip
        for attempt in over:
            self._conclude(attempt)
        if over:
            await asyncio.to_thread(shelf.close_off, over)
        for attempt in over:
            self._told(attempt)

    def _conclude(self, attempt: Attempt) -> None:
        for task, end in attempt.ends.items():
            if not end.sure:  # it was told to stop, and did
                attempt.ends[task] = replace(end, outcome=attempt.called_off, sure=True)
        attempt.outcome = attempt.gravest()
        now_ms = self._clock.now_ms()
        attempt.ended_ms = max((e.ended_ms for e in attempt.ends.values()), default=now_ms)
        if attempt.outcome.kind not in CALLED_OFF:
            attempt.detail = ""

    # Acting -----------------------------------------------------------------------------------

    async def stop(self, attempts: Iterable[Attempt]) -> None:
        """Tell jobs to stop. An element of a pack that has not begun is taken out: what starts in
        the same moment finds that it is cancelled and exits unrun."""
        ids: list[str] = []
        waiting: dict[str, Runs] = {}
        for attempt in attempts:
            for part in attempt.parts:
                if part.pack and part.local_id and not attempt.claims:
                    others = waiting.get(part.local_id, Runs())
                    waiting[part.local_id] = others.union(part.indices)
                elif part.local_id:
                    ids.append(part.called)
        for local_id, indices in waiting.items():
            await self._system.remove(local_id, indices)
        if ids:
            await self._system.stop(ids)

    async def _stop_cancelled(self, live: Iterable[Attempt], now_s: float) -> None:
        first = [a for a in live if a.cancel is not None and not a.stopped_s]
        await self.stop(first)
        for attempt in first:
            attempt.stopped_s = now_s
        for attempt in live:
            if attempt.cancel is None or attempt.left_queue:
                continue
            if now_s - attempt.stopped_s > attempt.cancel[0] + KILL_AFTER_S:
                for part in attempt.parts:
                    if part.local_id:
                        own = part.indices if part.pack else None
                        await self._system.remove(part.local_id, own)
                attempt.stopped_s = now_s - attempt.cancel[0]

    async def _widen(self, live: Iterable[Attempt]) -> None:
        """Share the width of an attempt among its jobs, the oldest first."""
        for attempt in live:
            if attempt.order.tasks is None or attempt.cancel is not None:
                continue
            left, ended = attempt.width, attempt.ended
            for part in attempt.parts:
                count = part.tasks.intersection(attempt.tasks).difference(ended).count
                wanted = min(left, count)
                left -= wanted
                if part.local_id and count and min(part.width, count) != wanted:
                    await self._system.widen(part.local_id, wanted)
                    part.width = wanted
