"""The three times the keeper needs. A class so that tests can hand in their own."""

from __future__ import annotations

import time


class KeeperClock:
    """The clocks of this machine."""

    def now_ms(self) -> int:
        """UTC epoch milliseconds, for records. Nothing is decided by it."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """For deadlines: stands still while the machine sleeps, so no job dies of that."""
        return time.monotonic()

    def since_boot_s(self) -> float:
        """Seconds since boot, sleep included: what the start times in /proc count in."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
