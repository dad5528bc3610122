"""What a site's own rules say to one command, at one instant. Pure; the file is `site_file`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from federation.jobs import JobSpec
from federation.refusals import Refusal, RefusalCode
from federation.site_limits import (
    ClosedWindow,
    NameRule,
    SiteLimits,
    refuses_image,
    refuses_person,
    refuses_runtime,
    refuses_time,
)
from federation.tickets import Ticket
from regional_agent.session.commands import Placement
from regional_agent.session.hours import Hours
from regional_agent.session.ledger import OTHERS, Ledger, Request
from regional_agent.session.resettle import SiteSeen

WINDOWS_MAX = 100
WINDOWS_AHEAD_MS = 32 * 86_400_000
"""As far as the longest job a tenant may run by default, and a day."""
_SHELL = "/bin/sh"
QUEUED_LEAST = 4
"""Enough for a place that comes free to be used at once, few enough to be taken back."""


@dataclass(frozen=True, slots=True)
class GuestShare:
    """What part of each pool (permille) the federation may hold: the first rule that holds."""

    otherwise_permille: int = 1_000
    rules: tuple[tuple[Hours, int], ...] = ()

    def at(self, at_ms: int) -> int:
        """The part at an instant."""
        for hours, permille in self.rules:
            if hours.holds(at_ms):
                return permille
        return self.otherwise_permille


@dataclass(frozen=True, slots=True)
class Blackout:
    """Times in which nothing of the federation runs: once, or every week."""

    reason: str = ""
    once: tuple[int, int] | None = None
    weekly: Hours | None = None

    def windows(self, from_ms: int, until_ms: int) -> list[ClosedWindow]:
        """Those that touch this time. One that repeats is cut to the time asked for."""
        if self.once is not None:
            begin, end = self.once
            return [ClosedWindow(begin, end, self.reason)] if end > from_ms else []
        spans = self.weekly.spans(from_ms, until_ms) if self.weekly is not None else []
        return [ClosedWindow(begin, end, self.reason) for begin, end in spans]


@dataclass(frozen=True, slots=True)
class DataReads:
    """How much may be read to measure how fast data comes here: at most `size_bytes` of one file
    each `every_s`, no faster than `bytes_per_s`. 0 bytes: nothing is read."""

    size_bytes: int = 8 * 2**20
    bytes_per_s: int = 32 * 2**20
    every_s: int = 3600


@dataclass(frozen=True, slots=True)
class SitePolicy:
    """The rules of `site.yaml` and the bans. `max_queued`: attempts that may wait in the queue of
    the site's scheduler, None = as many as come free while others are on their way, `QUEUED_LEAST`
    at least; `queue_start_ms`: how long they are to be expected to, 0 = not stated."""

    limits: SiteLimits = field(default_factory=SiteLimits)
    share: GuestShare = field(default_factory=GuestShare)
    blackouts: tuple[Blackout, ...] = ()
    max_queued: int | None = None
    queue_start_ms: int = 0
    data_reads: DataReads = field(default_factory=DataReads)

    def told(self, now_ms: int) -> SiteLimits:
        """The rules as the broker is told them now."""
        return replace(self.limits, guest_permille=self.share.at(now_ms))

    def windows(self, now_ms: int) -> tuple[ClosedWindow, ...]:
        """What closes the site now or in the time ahead, in order."""
        found = [
            window
            for blackout in self.blackouts
            for window in blackout.windows(now_ms, now_ms + WINDOWS_AHEAD_MS)
        ]
        return tuple(sorted(found, key=lambda window: window.from_ms)[:WINDOWS_MAX])


@dataclass(frozen=True, slots=True)
class Asked:
    """One command as the rules look at it."""

    ticket: Ticket
    spec: JobSpec
    placement: Placement
    request: Request


@dataclass(frozen=True, slots=True)
class Standing:
    """How a site stands at an instant: what it holds, how many attempts were accepted and do not
    run yet, and when it closes."""

    ledger: Ledger
    waiting: int
    windows: tuple[ClosedWindow, ...]
    now_ms: int


def refuses(policy: SitePolicy, site: str, asked: Asked, stands: Standing) -> Refusal | None:
    """Why the site's rules forbid this command now; None where they do not."""
    limits, runtime_s = policy.limits, asked.placement.max_runtime_s
    return (
        refuses_person(limits, site, asked.ticket.tenant, asked.ticket.subject)
        or refuses_image(limits, site, asked.spec.image)
        or _command(limits, site, asked.spec)
        or refuses_runtime(limits, site, runtime_s)
        or refuses_time(stands.windows, site, runtime_s, stands.now_ms)
        or _pending(limits, site, stands.waiting)
        or _share(policy, asked.request, stands)
    )


def program_of(spec: JobSpec) -> str:
    """What a job starts: its program, or what interprets its script."""
    if spec.command:
        return spec.command[0]
    first = (spec.run or "").partition("\n")[0]
    words = first[2:].split() if first.startswith("#!") else []
    return words[0] if words else _SHELL


def room(policy: SitePolicy, ledger: Ledger, now_ms: int) -> Mapping[str, int]:
    """Per pool, how many accelerators more the federation may hold now; pools without a limit
    are left out."""
    permille = policy.share.at(now_ms)
    left: dict[str, int] = {}
    for pool in ledger.pools:
        if not policy.limits.pools.takes(pool.name):
            left[pool.name] = 0
        elif permille < 1_000:
            total = pool.nodes * pool.accelerators_per_node
            left[pool.name] = max(0, total * permille // 1_000 - _held(ledger, pool.name))
    return left


def capped(left: Mapping[str, int], ledger: Ledger, seen: SiteSeen | None) -> Mapping[str, int]:
    """The room that is left where pools with cards, or without, together may hold so many."""
    if seen is None:
        return left
    cards = frozenset(pool.name for pool in ledger.pools if pool.accelerator != "CPU")
    whole = [] if seen.cards_max is None else [(cards, seen.cards_max)]
    of_cards = [(cards & pools, most) for pools, most in (*whole, *seen.cards_bounds)]
    for pools, most in (*of_cards, *((some - cards, n) for some, n in seen.slots_bounds)):
        names = sorted(pools)
        free = max(0, most - sum(_held(ledger, name) for name in names))
        left = {**left, **{name: min(left.get(name, free), free) for name in names}}
    return left


def _held(ledger: Ledger, pool: str) -> int:
    reserved = ledger.reservations.values()
    ours = [r.request for r in reserved if not r.uid.startswith(OTHERS)]
    return sum(_units(request) for request in ours if request.pool == pool)


def _units(request: Request) -> int:
    return request.replicas * request.width * request.accelerators


def _command(limits: SiteLimits, site: str, spec: JobSpec) -> Refusal | None:
    program = program_of(spec)
    names = (program, program.rpartition("/")[2])
    denied = not all(NameRule(deny=limits.commands.deny).takes(name) for name in names)
    allowed = any(NameRule(allow=limits.commands.allow).takes(name) for name in names)
    if allowed and not denied:
        return None
    return Refusal(
        RefusalCode.COMMAND_NOT_ALLOWED, site, available=f"the site does not start {program}"
    )


def _pending(limits: SiteLimits, site: str, waiting: int) -> Refusal | None:
    if not limits.max_pending or waiting < limits.max_pending:
        return None
    return Refusal(
        RefusalCode.SITE_LIMIT,
        site,
        available=f"{waiting} attempts wait, {limits.max_pending} may (max_pending)",
    )


def _share(policy: SitePolicy, request: Request, stands: Standing) -> Refusal | None:
    if not policy.limits.pools.takes(request.pool):
        return Refusal(
            RefusalCode.SITE_LIMIT, f"pool {request.pool}", available="not for the federation"
        )
    left = room(policy, stands.ledger, stands.now_ms).get(request.pool)
    if left is None or _units(request) <= left:
        return None
    share = policy.share.at(stands.now_ms)
    return Refusal(
        RefusalCode.SITE_LIMIT,
        f"pool {request.pool}",
        needed=f"{_units(request)} accelerators",
        available=f"{left} left of the guest share, {share / 10:g} % now",
    )
