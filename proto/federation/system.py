"""The real clock, dice and ids. Imported by app modules alone; nothing else asks the machine."""

from __future__ import annotations

import random
import secrets
import time

from federation.ids import RANDOM_BITS, JobId, make_job_id

_IDS_AT_ONCE = 256
_BYTES_AN_ID = (RANDOM_BITS + 7) // 8
_RANDOM_MASK = (1 << RANDOM_BITS) - 1


class SystemClock:
    """`Clock` of this machine."""

    def now_ms(self) -> int:
        """UTC wall time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock (stands still while the machine sleeps, on Linux)."""
        return time.monotonic()


class SystemRng:
    """`Rng` from the operating system's entropy."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def random_bits(self, n: int) -> int:
        """An integer in [0, 2**n), n >= 1."""
        return self._random.getrandbits(n)

    def uniform(self, lo: float, hi: float) -> float:
        """A number in [lo, hi]."""
        return self._random.uniform(lo, hi)


class SystemIds:
    """`Ids` from the operating system's entropy, which is asked for many job ids at a time."""

    def __init__(self) -> None:
        self._drawn: list[int] = []

    def job_id(self, now_ms: int) -> JobId:
        """A new job id ordered by `now_ms` (UTC epoch milliseconds)."""
        if not self._drawn:
            many = secrets.token_bytes(_BYTES_AN_ID * _IDS_AT_ONCE)
            self._drawn = [
                int.from_bytes(many[at : at + _BYTES_AN_ID], "big") & _RANDOM_MASK
                for at in range(0, len(many), _BYTES_AN_ID)
            ]
        return make_job_id(now_ms, self._drawn.pop())

    def token_bytes(self, n: int) -> bytes:
        """`n` bytes fit for secrets."""
        return secrets.token_bytes(n)
