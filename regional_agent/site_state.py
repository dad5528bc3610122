"""What the site's people want of the federation's work now: paused, draining, evicted, banned.

One small file in the state directory, written by `tradewind-agent pause` and its like, with or
without a running agent, and read by the agent whenever it is told to and at its start. It is the
truth; whoever changes it holds a lock and replaces it whole and durably.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from federation.units import format_utc
from regional_agent.act.keeper.records import replace_file

FILE = "site-state.json"
LOCK = "site-state.lock"
OPEN, PAUSED, DRAINING = "open", "paused", "draining"
GRACE_S = 300
DRAIN_MS = 86_400_000
EVICTED_KEPT_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class Ban:
    """A user or tenant nothing is taken from."""

    since_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Eviction:
    """An attempt that has to go."""

    since_ms: int
    grace_s: int


@dataclass(frozen=True, slots=True)
class SiteState:
    """`deadline_ms`: what still runs then is evicted with `grace_s`; 0 = no deadline.

    `evict_all`: everything has to go now. `evictions` are single attempts that have to.
    """

    state: str = OPEN
    reason: str = ""
    since_ms: int = 0
    deadline_ms: int = 0
    grace_s: int = GRACE_S
    evict_all: bool = False
    evictions: Mapping[str, Eviction] = field(default_factory=dict)
    bans: Mapping[str, Ban] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Why nothing is taken, for people; empty while something is."""
        if self.state == OPEN:
            return ""
        parts = [self.reason] if self.reason else []
        if self.evict_all:
            parts.append("everything is evicted")
        elif self.deadline_ms:
            parts.append(f"until {format_utc(self.deadline_ms)}")
        return ", ".join(parts)

    def everything_goes(self, now_ms: int) -> bool:
        """Whether what runs has to stop now."""
        return self.evict_all or 0 < self.deadline_ms <= now_ms


def paused(before: SiteState, now_ms: int, reason: str) -> SiteState:
    """Nothing new; what runs goes on."""
    return _stated(before, PAUSED, now_ms, reason)


def resumed(before: SiteState, now_ms: int) -> SiteState:
    """Everything is taken again. Bans stay."""
    return _stated(before, OPEN, now_ms, "")


def draining(
    before: SiteState, now_ms: int, deadline_ms: int | None, grace_s: int | None, reason: str
) -> SiteState:
    """Nothing new, and what runs at the deadline is evicted.

    What is left out stays as a drain that is on has it: to look again puts no deadline off.
    """
    is_on = before.state == DRAINING and before.deadline_ms > 0
    usual = before if is_on else SiteState(deadline_ms=now_ms + DRAIN_MS)
    drained = _stated(before, DRAINING, now_ms, reason or usual.reason)
    return replace(
        drained,
        since_ms=before.since_ms if is_on else now_ms,
        deadline_ms=usual.deadline_ms if deadline_ms is None else deadline_ms,
        grace_s=usual.grace_s if grace_s is None else grace_s,
    )


def evicting(
    before: SiteState, now_ms: int, uids: tuple[str, ...], grace_s: int, reason: str
) -> SiteState:
    """These attempts have to go; without any, all, and nothing new is taken."""
    if not uids:
        stated = _stated(before, PAUSED, now_ms, reason)
        return replace(stated, evict_all=True, grace_s=grace_s)
    kept = {
        uid: eviction
        for uid, eviction in before.evictions.items()
        if now_ms - eviction.since_ms < EVICTED_KEPT_MS
    }
    return replace(before, evictions=kept | dict.fromkeys(uids, Eviction(now_ms, grace_s)))


def banned(before: SiteState, now_ms: int, name: str, reason: str) -> SiteState:
    """Nothing more of this user or tenant."""
    return replace(before, bans={**before.bans, name: Ban(now_ms, reason)})


def unbanned(before: SiteState, name: str) -> SiteState:
    """Taken again. Raises KeyError for a name that is not banned here."""
    left = dict(before.bans)
    del left[name]
    return replace(before, bans=left)


def _stated(before: SiteState, state: str, now_ms: int, reason: str) -> SiteState:
    return SiteState(state, reason, now_ms, evictions=before.evictions, bans=before.bans)


def read_site_state(state_dir: Path) -> SiteState:
    """As it lies there. What cannot be read pauses the site: nobody knows what was wanted."""
    path = state_dir / FILE
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return SiteState()
    except (OSError, ValueError, KeyError, TypeError) as problem:
        reason = f"{path} cannot be read ({problem}); tradewind-agent resume writes it anew"
        return SiteState(PAUSED, " ".join(reason.split()))


def change_site_state(state_dir: Path, change: Callable[[SiteState], SiteState]) -> SiteState:
    """Durably replace it by what `change` makes of it. Raises OSError, and what `change` does."""
    lock = os.open(state_dir / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = change(read_site_state(state_dir))
        replace_file(state_dir / FILE, json.dumps(asdict(changed)).encode())
        return changed
    finally:
        os.close(lock)


def _parse(body: Mapping[str, Any]) -> SiteState:
    if body["state"] not in (OPEN, PAUSED, DRAINING):
        raise ValueError(f"state {body['state']!r}")
    return SiteState(
        state=body["state"],
        reason=str(body["reason"]),
        since_ms=int(body["since_ms"]),
        deadline_ms=int(body["deadline_ms"]),
        grace_s=int(body["grace_s"]),
        evict_all=bool(body["evict_all"]),
        evictions={uid: Eviction(**each) for uid, each in body["evictions"].items()},
        bans={name: Ban(**each) for name, each in body["bans"].items()},
    )
