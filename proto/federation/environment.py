"""The ports to everything that is not determined: clock, dice and ids.

Code of the core takes these as constructor arguments. The real ones live in `federation.system`
and are chosen by the app modules alone; simulations and tests hand in their own.
"""

from __future__ import annotations

from typing import Protocol

from federation.ids import JobId


class Clock(Protocol):
    """What time it is, in the two senses that must not be mixed."""

    def now_ms(self) -> int:
        """UTC wall time in ms since 1970. May step back: for records, not for waiting."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an unspecified start; never goes back. For measuring how long."""
        ...


class Rng(Protocol):
    """A source of randomness that a simulation can replay."""

    def random_bits(self, n: int) -> int:
        """An integer in [0, 2**n), n >= 1, every value equally likely."""
        ...

    def uniform(self, lo: float, hi: float) -> float:
        """A number in [lo, hi], for jitter."""
        ...


class Ids(Protocol):
    """Makes names nobody else makes."""

    def job_id(self, now_ms: int) -> JobId:
        """A new job id: ordered by `now_ms`, with an unguessable tail."""
        ...

    def token_bytes(self, n: int) -> bytes:
        """`n` secret bytes, fit for tokens and nonces."""
        ...
