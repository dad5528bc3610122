"""Contact deadlines: an attempt that has one is stopped when nobody put it off in time.

They are counted by the clock that runs on while the machine sleeps, and looked at on every turn.
Stopping does not wait for the disk: a job whose place another one takes must not run on because
a record could not be written. Once a deadline has passed, no later contact puts it off.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from regional_agent.act.keeper.clock import KeeperClock
from regional_agent.act.keeper.held import Held
from regional_agent.act.keeper.layout import contact_path
from regional_agent.act.keeper.runner import Runner

NEVER = float("-inf")
LOOK_S = 0.5
"""At least so often while a deadline runs: after a sleep of the machine it may be long past."""


class Fence:
    """The deadlines of all attempts here. `open` before any attempt is held."""

    def __init__(self, state: Path, runner: Runner, clock: KeeperClock, boot: str) -> None:
        self._path = contact_path(state)
        self._runner = runner
        self._clock = clock
        self._boot = boot
        self._contact_s: dict[str, float] = {}
        self._earlier_s = NEVER

    def open(self) -> None:
        """See what contact an earlier keeper of this boot had: it put off, or had recorded as
        passed, what it held then."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(self._path.read_bytes())
            if kept["boot"] == self._boot:
                self._earlier_s = float(kept["at_s"])

    def hold(self, held: Held, *, taken_up: bool = False) -> None:
        """Watch an attempt; `taken_up`: it was held by an earlier keeper."""
        attempt = held.attempt
        if not attempt.order.fence_after_s or attempt.outcome is not None:
            return
        boot, at_s = attempt.contact
        contact_s = at_s if boot == self._boot else NEVER
        self._contact_s[held.uid] = max(contact_s, self._earlier_s) if taken_up else contact_s

    def contact_of(self, at_s: float | None) -> tuple[str, float] | None:
        """The contact an order came with, as it is recorded; None: there was none."""
        return None if at_s is None else (self._boot, float(at_s))

    def renew(self, at_s: float) -> None:
        """There was contact at `at_s` (seconds since boot). What is overdue is stopped first, and
        that is written before the contact is: a keeper that starts anew must not take the one for
        the other."""
        self.look()
        at_s = min(at_s, self._clock.since_boot_s())
        for uid, contact_s in self._contact_s.items():
            if self.overdue_s(uid) < 0:
                self._contact_s[uid] = max(contact_s, at_s)
        if self._contact_s:
            with contextlib.suppress(OSError):  # an older one stays: deadlines come sooner
                self._keep(at_s)

    def look(self) -> None:
        """Stop what is overdue."""
        for uid in list(self._contact_s):
            held = self._runner.attempts.get(uid)
            if held is None or held.attempt.outcome is not None:
                del self._contact_s[uid]
                continue
            overdue_s = self.overdue_s(uid)
            if overdue_s >= 0:
                self._stop(held, overdue_s)

    def overdue_s(self, uid: str) -> float:
        """For how long the deadline of an attempt has passed; negative: it has not."""
        held = self._runner.attempts[uid]
        if uid not in self._contact_s:
            return NEVER
        due_s = self._contact_s[uid] + held.attempt.order.fence_after_s
        return self._clock.since_boot_s() - due_s

    def may_start(self, held: Held) -> bool:
        """Whether a task of it may be started now."""
        return self.overdue_s(held.uid) < 0

    def wait_s(self) -> float | None:
        """How long the loop may sleep; None: no deadline runs."""
        return LOOK_S if self._contact_s else None

    def _stop(self, held: Held, overdue_s: float) -> None:
        attempt, runner = held.attempt, self._runner
        grace_s = max(0.0, attempt.order.grace_s - overdue_s)
        if not attempt.fenced and not attempt.cancelled:
            runner.record(held, {"k": "fence"})
            with contextlib.suppress(OSError):
                held.write()
            for live in list(attempt.live.values()):
                runner.stop(held, live, grace_s)
            runner.settle(held)
        elif not grace_s:  # a grace is counted by the clock that stood still, or a longer one
            for live in list(attempt.live.values()):
                runner.stop(held, live, 0)

    def _keep(self, at_s: float) -> None:
        """Not synced: after a loss of power no process is left to be put off."""
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.write_text(json.dumps({"boot": self._boot, "at_s": at_s}))
        os.replace(fresh, self._path)
