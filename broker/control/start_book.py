"""What one replica has learned of starts: from its own ended attempts, and from the ledger.

The ledger is read at an election and, by a replica that does not lead, every minute: so all
replicas explain alike, and a new leader knows what the last one knew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from broker.feedback.ports import AttemptEntry, FeedbackUnavailable, Ledger
from broker.model.jobs import Attempt
from broker.sense.preemptions import Preemptions, Seen
from broker.sense.start_delay import SAMPLES, StartDelays, StartSample, start_sample

REFRESH_S = 60.0
log = logging.getLogger("tradewind.starts")


class StartBook:
    """Starts as this replica knows them. `delays` is what decisions read; `preemptions` what was
    seen of runs that were cut short."""

    def __init__(
        self,
        ledger: Ledger,
        clusters: Callable[[], Iterable[str]],
        recorded: Callable[[], Mapping[tuple[str, str], Seen]] = dict,
    ) -> None:
        """`clusters`: all that are known now. `recorded`: preemptions that leaders wrote down."""
        self._ledger = ledger
        self._clusters = clusters
        self._recorded = recorded
        self.delays = StartDelays()
        self.preemptions = Preemptions()

    def ended(self, attempt: Attempt) -> None:
        """Learn from an attempt that is over."""
        self.preemptions.ended(attempt)
        if attempt.queued:
            return  # a wait in a site's queue says nothing of a start where something is free
        times_ms = (attempt.placed_ms, attempt.reserved_ms, attempt.started_ms)
        sample = start_sample(
            attempt.uid, attempt.cluster, times_ms, attempt.prepare_ms, attempt.fetched_bytes
        )
        if sample is not None:
            self.delays.observe(sample)

    def take_over(self) -> None:
        """Go on from the preemptions that leaders wrote down. Done by a new leader once it has
        adopted what it found: ends that it closes again then are in the record already."""
        self.preemptions.take_over(self._recorded())

    async def rebuild(self) -> None:
        """Learn what the ledger knows, the oldest start first. A ledger that is away leaves what
        is known as it is."""
        for cluster in list(self._clusters()):
            try:
                rows = await self._ledger.starts(cluster, SAMPLES)
            except FeedbackUnavailable as problem:
                log.warning("starts of %s are not known: %s", cluster, problem)
                return
            for row in reversed(rows):
                sample = _sample(row)
                if sample is not None:
                    self.delays.observe(sample)

    async def follow(self, leading: Callable[[], bool]) -> None:
        """Read the ledger again and again while another replica leads; for ever."""
        while True:
            if not leading():
                self.take_over()
                await self.rebuild()
            await asyncio.sleep(REFRESH_S)


def _sample(row: AttemptEntry) -> StartSample | None:
    if row.fetched_bytes is None or row.queued:
        return None  # written by a version that did not know what was fetched, or it waited
    times_ms = (row.placed_ms, row.reserved_ms or 0, row.started_ms or 0)
    return start_sample(row.uid, row.cluster, times_ms, row.prepare_ms or 0, row.fetched_bytes)
