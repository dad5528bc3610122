"""When a leader was last known to hear this agent: what contact deadlines are counted from.

A heartbeat counts from when it was *sent*, and only once its answer came: a leader answers while it
has a quorum behind it, so at that moment no other leader had been elected. The clock runs on while
the machine sleeps.

An attempt with a deadline is watched here from its acceptance until the scheduler has it. After one
silence longer than its deadline it is dead for good, whatever contact there is later: another may
have taken its place meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

NEVER = float("-inf")
BEATS_REMEMBERED = 64
BEAT_MAX_S = 15.0
"""An agent beats this often at least: a quarter of the shortest contact deadline there may be."""
HELLO = 0
"""The number of the hello among heartbeats: only a leader welcomes."""


def since_boot_s() -> float:
    """Seconds since boot, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class _Deadline:
    after_s: int
    contact_s: float


class Contact:
    """The last confirmed contact of this agent, over all its sessions."""

    def __init__(self, now_s: Callable[[], float] = since_boot_s) -> None:
        self._now_s = now_s
        self._sent: OrderedDict[tuple[object, int], float] = OrderedDict()
        self._waiting: dict[str, _Deadline] = {}
        self.at_s = NEVER
        self.renewed = asyncio.Event()

    # Sessions ---------------------------------------------------------------------------------

    def sending(self, session: object, beat: int) -> None:
        """A heartbeat is about to be sent."""
        self._sent[session, beat] = self._now_s()
        while len(self._sent) > BEATS_REMEMBERED:
            self._sent.popitem(last=False)

    def answered(self, session: object, beat: int) -> None:
        """The answer to a heartbeat came."""
        sent_s = self._sent.pop((session, beat), NEVER)
        if sent_s <= self.at_s:
            return
        now_s = self._now_s()
        for deadline in self._waiting.values():
            if now_s <= deadline.contact_s + deadline.after_s:
                deadline.contact_s = sent_s
        self.at_s = sent_s
        self.renewed.set()

    # Attempts that the scheduler does not have yet ----------------------------------------------

    def begin(self, uid: str, after_s: int, contact_s: float) -> None:
        """Watch an attempt whose last contact was at `contact_s`; 0 seconds: no deadline."""
        if not after_s:
            return
        if self._now_s() <= contact_s + after_s:  # no longer gap has fitted in since
            contact_s = max(contact_s, self.at_s)
        self._waiting[uid] = _Deadline(after_s, contact_s)

    def of(self, uid: str) -> float | None:
        """The last contact of an attempt; None once its deadline has passed. The scheduler is told
        and goes on from there."""
        deadline = self._waiting.get(uid)
        if deadline is None:
            return NEVER
        late = self._now_s() > deadline.contact_s + deadline.after_s
        return None if late else deadline.contact_s

    def end(self, uid: str) -> None:
        """The scheduler has it, or it came to nothing."""
        self._waiting.pop(uid, None)
