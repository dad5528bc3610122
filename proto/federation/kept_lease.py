"""A lease kept alive, that knows by its own clock when it may no longer be trusted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from federation.environment import Clock
from federation.kv import LeaseNotFound, StoreError

# A lease is renewed this many times within its TTL.
_RENEWALS_PER_TTL = 3
# After a renewal that failed the next comes this much sooner.
_HURRY = 4


class Leases(Protocol):
    """The part of a store that gives leases."""

    async def grant(self, ttl_s: int) -> int:
        """Create a lease; returns its id."""
        ...

    async def keep(self, lease: int) -> int:
        """Renew a lease once; returns its TTL in seconds. Raises `LeaseNotFound`."""
        ...

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys."""
        ...


class KeptLease:
    """A lease renewed in the background; an async context manager.

    It counts as lost once `ttl_s` passed since the last confirmed renewal was *sent*, whatever
    the connection does: the store counts from later, so it never lets go before we do, as long
    as both clocks run at the same speed. A lost lease stays lost; take a new one.
    """

    def __init__(self, leases: Leases, ttl_s: int, clock: Clock) -> None:
        """`ttl_s` >= 1 second; the store may grant more, which is not relied on."""
        self._leases = leases
        self._ttl_s = ttl_s
        self._clock = clock
        self._deadline_s = 0.0
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.id = 0

    async def __aenter__(self) -> Self:
        """Take the lease. Raises what `grant` raises."""
        sent_s = self._clock.monotonic_s()
        self.id = await self._leases.grant(self._ttl_s)
        self._deadline_s = sent_s + self._ttl_s
        self._task = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop renewing and give the lease back; if that fails it ends by itself."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._lost.set()
        with suppress(StoreError):
            await self._leases.revoke(self.id)

    @property
    def alive(self) -> bool:
        """Whether the lease can be relied on at this moment."""
        return not self._lost.is_set() and self.remaining_s > 0

    @property
    def remaining_s(self) -> float:
        """Seconds it can be relied on without a further renewal; negative once over."""
        return self._deadline_s - self._clock.monotonic_s()

    async def wait_lost(self) -> None:
        """Return once the lease is lost or given back."""
        await self._lost.wait()

    async def _keep(self) -> None:
        try:
            while await self._renew_once():
                pass
        finally:
            self._lost.set()

    async def _renew_once(self) -> bool:
        """Wait for the next renewal and try it; False once the lease is lost."""
        pause_s = self._ttl_s / _RENEWALS_PER_TTL
        if self.remaining_s < self._ttl_s - pause_s:
            pause_s /= _HURRY
        await asyncio.sleep(max(min(pause_s, self.remaining_s), 0.0))
        sent_s = self._clock.monotonic_s()
        if sent_s >= self._deadline_s:
            return False
        try:
            async with asyncio.timeout(self.remaining_s):
                await self._leases.keep(self.id)
        except LeaseNotFound:
            return False
        except (StoreError, TimeoutError):
            return True
        self._deadline_s = sent_s + self._ttl_s
        return True
