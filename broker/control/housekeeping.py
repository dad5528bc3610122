"""What grows for ever unless somebody looks: idempotency keys in etcd, old cycle figures."""

from __future__ import annotations

import asyncio
import logging

from broker.control.submission import Submissions
from broker.feedback.ports import FeedbackUnavailable, Ledger
from federation.environment import Clock
from federation.kv import StoreError

log = logging.getLogger("tradewind.housekeeping")

EVERY_S = 3600.0
REPLAYS_KEPT_MS = 48 * 3600 * 1000
"""A repeated submission is known for at least 24 h; twice that is kept."""
CYCLES_KEPT_MS = 30 * 24 * 3600 * 1000


class Housekeeping:
    """Hourly, on every replica: both deletions may be repeated and raced."""

    def __init__(self, submissions: Submissions, ledger: Ledger, clock: Clock) -> None:
        self._submissions = submissions
        self._ledger = ledger
        self._clock = clock

    async def run(self) -> None:
        """Tidy for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.tidy()
            except (StoreError, FeedbackUnavailable) as error:
                log.warning("tidying is put off: %s", error)

    async def tidy(self) -> tuple[int, int]:
        """Forget what is old; returns how many keys and cycles went."""
        now_ms = self._clock.now_ms()
        replays = await self._submissions.forget_replays(now_ms - REPLAYS_KEPT_MS)
        cycles = await self._ledger.forget_cycles(now_ms - CYCLES_KEPT_MS)
        return replays, cycles
