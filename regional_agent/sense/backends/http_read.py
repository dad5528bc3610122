"""A bounded read over HTTP whose bytes are thrown away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import aiohttp
from yarl import URL

from federation.environment import Clock
from regional_agent.sense.data_rates import Arrival, Read
from regional_agent.session.site_policy import DataReads

READ_S_MAX = 30.0
"""What has not come by then says enough."""
LEAST_BYTES = 2**20
CHUNK_BYTES = 64 * 2**10
HELD_BACK_PART = 0.1
"""Where we ourselves waited for more than this part of a read, the way may be faster."""
_HEADERS = {"Accept-Encoding": "identity", "Cache-Control": "no-cache"}
_log = logging.getLogger(__name__)


class HttpRead:
    """`Fetch` over HTTP: one range of one file, on a connection of its own."""

    def __init__(
        self, clock: Clock, proxy_of: Callable[[str], str], within_s: float = READ_S_MAX
    ) -> None:
        self._clock = clock
        self._proxy_of = proxy_of
        self._within_s = within_s

    async def __call__(self, url: str, limits: DataReads) -> Read | None:
        """At most the first `size_bytes`, no faster than `bytes_per_s`; None where nothing came.
        A redirect is not followed: the site named this place and no other."""
        meter = _Meter(self._clock, limits)
        try:
            async with asyncio.timeout(self._within_s):
                await self._read(url, meter)
        except _NotMeasurable as problem:
            _log.warning("data source at %s: %s", URL(url).host, problem)
            return None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as problem:
            # Only of what kind it is: texts of such errors may hold the URL, and that a secret.
            if not meter.arrivals:  # else it is slow, and that is what is measured
                _log.warning("data source at %s: %s", URL(url).host, type(problem).__name__)
        return meter.read()

    async def _read(self, url: str, meter: _Meter) -> None:
        headers = {**_HEADERS, "Range": f"bytes=0-{meter.limits.size_bytes - 1}"}
        timeout = aiohttp.ClientTimeout(total=None)
        # What is read ahead of us stays small, so that the pace we keep reaches the sender.
        async with (
            aiohttp.ClientSession(timeout=timeout, read_bufsize=CHUNK_BYTES) as session,
            session.get(
                url, headers=headers, proxy=self._proxy_of(url) or None, allow_redirects=False
            ) as answer,
        ):
            _check(answer, meter.limits)
            while left := meter.left_bytes:
                block = await answer.content.read(min(CHUNK_BYTES, left))
                if not block:
                    return
                await meter.took(len(block))


class _NotMeasurable(Exception):
    """An answer that is not worth reading, or too long; says why."""


def _check(answer: aiohttp.ClientResponse, limits: DataReads) -> None:
    """Raises _NotMeasurable where more would come than may, or too little to tell anything."""
    size_bytes = answer.content_length
    if answer.status not in (200, 206):
        raise _NotMeasurable(f"answers {answer.status}, not 206")
    if size_bytes is None or size_bytes > limits.size_bytes:
        raise _NotMeasurable("does not give part of a file (HTTP ranges); nothing was read")
    if size_bytes < min(LEAST_BYTES, limits.size_bytes):
        raise _NotMeasurable(f"has {size_bytes} bytes, {LEAST_BYTES} tell something")


class _Meter:
    """Counts what comes, and waits where it comes faster than it may."""

    def __init__(self, clock: Clock, limits: DataReads) -> None:
        self.limits = limits
        self.arrivals: list[Arrival] = []
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._waited_s = 0.0

    @property
    def left_bytes(self) -> int:
        """How much more may be read."""
        return self.limits.size_bytes - (self.arrivals[-1].total_bytes if self.arrivals else 0)

    async def took(self, size_bytes: int) -> None:
        """So many more came."""
        after_s = self._clock.monotonic_s() - self._began_s
        total_bytes = self.limits.size_bytes - self.left_bytes + size_bytes
        self.arrivals.append(Arrival(after_s, total_bytes))
        early_s = total_bytes / self.limits.bytes_per_s - after_s
        if early_s > 0 and self.left_bytes:
            self._waited_s += early_s
            await asyncio.sleep(early_s)

    def read(self) -> Read | None:
        """What came, if anything did."""
        if not self.arrivals:
            return None
        took_s = self._clock.monotonic_s() - self._began_s
        return Read(tuple(self.arrivals), took_s, self._waited_s > HELD_BACK_PART * took_s)
