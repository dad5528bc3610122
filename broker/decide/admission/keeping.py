"""For whom capacity is kept next, and when it no longer is. Pure.

A gang that waited long and fits into no pool as things stand would never start while smaller jobs
take each place that comes free. So the next such gang gets one pool's nodes kept as they come free,
until the instant at which what runs there must be over. What is kept counts as its tenant's, so a
tenant gets no more kept than its share, all of them together never more than half of a model, and
each hold ends by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from broker.decide.admission.admit import Admission, Entry, Rank, Scene
from broker.decide.admission.holds import Hold, HoldWhy, room_at_ms, shape_of
from broker.decide.admission.leaving import Departure
from broker.decide.admission.making_room import Stop
from broker.decide.admission.moving import Move
from broker.decide.admission.running import Running
from broker.decide.admission.shares import STEP, dominant
from broker.decide.admission.wishes import Wish, places
from broker.model.admission import AdmissionRules
from broker.model.problem import Job, Pool

HOLDS_MAX = 32
KEPT_SHARE_MAX = 0.5
"""Of a model's accelerators, what may be kept at once; one gang may always wait for its room."""
MOVE_BEGINS_MS = 10_000
"""So long after it was decided a move may not have begun to show."""
SLACK_S = 120.0
"""What starting, ending and saying so may take beyond a runtime."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A gang that ended against its will at `ended_ms` in `pool` and is to run again."""

    job: Job
    pool: str
    ended_ms: int


def kept_on(
    holds: Sequence[Hold],
    wishes: Sequence[Wish],
    now_ms: int,
    leaving: Collection[str] = (),
) -> tuple[list[Hold], dict[str, int]]:
    """Holds that still are for somebody who waits and whose time is not over; and the jobs of
    those whose time is over in vain, with how long (ms) something was kept for them. `leaving`:
    jobs that are being stopped; what moves does not wait before it has left."""
    kept: list[Hold] = []
    in_vain: dict[str, int] = {}
    for hold in holds:
        fresh = now_ms < hold.since_ms + MOVE_BEGINS_MS or hold.job in leaving
        if hold.why is HoldWhy.MOVE and fresh and now_ms < hold.until_ms:
            kept.append(hold)
            continue
        mine = next((w for w in wishes if hold.is_for(w) and not w.set_back), None)
        if mine is None or hold.why is HoldWhy.RECOVERY:  # these are reckoned anew each time
            continue
        if now_ms < hold.until_ms:
            kept.append(hold)
        elif hold.why is HoldWhy.GANG:
            in_vain[mine.job.id] = hold.until_ms - hold.since_ms
    return kept, in_vain


def for_lost(lost: Sequence[Lost], now_ms: int, rules: AdmissionRules) -> list[Hold]:
    """Gangs that lost a member find the place they had, for a bounded time."""
    found: list[Hold] = []
    for each in lost:
        until_ms = each.ended_ms + round(rules.recovery_s * 1000)
        if now_ms < until_ms:
            found.append(_hold(each.job, each.pool, HoldWhy.RECOVERY, now_ms, until_ms))
    return found


def for_claims(stops: Sequence[Stop], scene: Scene, now_ms: int) -> list[Hold]:
    """What is stopped for somebody is kept for that one until it is gone."""
    going: dict[tuple[int, str], list[Running]] = {}
    for stop in stops:
        going.setdefault((stop.wish, stop.pool), []).append(stop.attempt)
    found: list[Hold] = []
    for (wish, pool), attempts in going.items():
        job = scene.wishes[wish].job
        grace_s = max(attempt.grace_s for attempt in attempts)
        until_ms = now_ms + round((grace_s + SLACK_S) * 1000)
        hold = _hold(job, pool, HoldWhy.CLAIM, now_ms, until_ms)
        wanted = -(-sum(a.accelerators for a in attempts) // job.gang_accelerators)
        found.append(replace(hold, job="", copies=max(min(wanted, job.count), 1)))
    return found


def for_departures(leaving: Sequence[Departure], now_ms: int) -> list[Hold]:
    """The same for who leaves the queue of a site, which takes no grace."""
    until_ms = now_ms + round(SLACK_S * 1000)
    return [
        replace(
            _hold(d.waits.job, d.to, HoldWhy.MOVE, now_ms, until_ms),
            room_ms=now_ms,
            copies=d.waits.job.count,
        )
        for d in leaving
    ]


def for_moves(moves: Sequence[Move], now_ms: int) -> list[Hold]:
    """Who moves finds its place free, for the time it takes to leave the old one."""
    found: list[Hold] = []
    for move in moves:
        until_ms = now_ms + round((move.mover.attempt.grace_s + SLACK_S) * 1000)
        hold = _hold(move.mover.job, move.pool, HoldWhy.MOVE, now_ms, until_ms)
        found.append(replace(hold, room_ms=now_ms))  # nobody fills the gap: it is short
    return found


def next_gang(
    scene: Scene,
    admission: Admission,
    left: Mapping[int, int],
    holds: Sequence[Hold],
    rules: AdmissionRules,
) -> Hold | None:
    """The next gang to keep capacity for: of the highest priority, of the tenant whose turn it
    would be there, the oldest. None where none is due, or none can be helped."""
    if len(holds) >= HOLDS_MAX:
        return None
    bids = _bids(scene, admission, left)
    lowest: dict[int, float] = {}
    for index, bid in bids.items():
        priority = scene.wishes[index].job.priority
        lowest[priority] = min(lowest.get(priority, bid), bid)
    for index in sorted(left, key=lambda i: (-scene.wishes[i].job.priority, i)):
        wish = scene.wishes[index]
        job = wish.job
        due = (
            wish.waited_s >= rules.patience_s
            and not wish.set_back
            and job.gang_accelerators > 1
            and bids[index] <= lowest[job.priority] + STEP
            and admission.allowances.room(job.tenant) >= job.gang_accelerators
            and max(admission.room.models(job, empty=False).values(), default=0) < job.replicas
        )
        if due:
            found = _best_pool(scene, admission, holds, (job, rules))
            if found is not None:
                return found
    return None


def _bids(scene: Scene, admission: Admission, left: Mapping[int, int]) -> dict[int, float]:
    """Bids of those that wait as if all wanted copies of the smallest size there is: a gang is
    not behind for being large."""
    shares = admission.shares
    amounts = {
        index: scene.wishes[index].amounts(next(iter(scene.wishes[index].job.accelerators)))
        for index in left
    }
    smallest = min(amounts.values(), key=lambda each: dominant(each, shares.totals), default={})
    return {index: shares.bid(scene.wishes[index].job.tenant, smallest) for index in left}


def _best_pool(
    scene: Scene,
    admission: Admission,
    holds: Sequence[Hold],
    what: tuple[Job, AdmissionRules],
) -> Hold | None:
    """Where there will be room first, behind what is kept there already, within the longest that
    anything is kept."""
    job, rules = what
    size, found = job.accelerators_per_replica, list[tuple[int, str]]()
    whole = {pool.name: pool for pool in scene.pools}
    for pool in admission.room.open_to(job):
        kept = sum(hold.accelerators for hold in holds if hold.model == pool.accelerator)
        most = KEPT_SHARE_MAX * admission.shares.totals.get(pool.accelerator, 0.0)
        if kept and kept + job.gang_accelerators > most:
            continue
        before = sum(hold.accelerators for hold in holds if hold.pool == pool.name)
        behind = replace(job, replicas=job.replicas + -(-before // size))
        if places(pool.when_empty or pool.nodes, size) < behind.replicas:
            continue
        at_ms = room_at_ms(whole[pool.name], behind, scene.running, scene.now_ms)
        if at_ms is not None and at_ms <= scene.now_ms + rules.hold_max_s * 1000:
            found.append((at_ms, pool.name))
    if not found:
        return None
    at_ms, name = min(found)
    if _one_end_is_enough(whole[name], job, scene, at_ms):
        return None
    until_ms = at_ms + round(SLACK_S * 1000)
    hold = _hold(job, name, HoldWhy.GANG, scene.now_ms, until_ms)
    return replace(hold, room_ms=at_ms, job="", model=whole[name].accelerator)


def _one_end_is_enough(pool: Pool, job: Job, scene: Scene, by_ms: int) -> bool:
    """Whether a single attempt that is over by then leaves room for a copy. Then pieces need not be
    collected, and whose turn it is then is better known then."""
    return any(
        room_at_ms(pool, job, (attempt,), scene.now_ms) is not None
        for attempt in scene.running
        if attempt.pool == pool.name and attempt.ends_ms <= by_ms
    )


def looked_at_again(
    holds: Sequence[Hold], scene: Scene, pools: Mapping[str, Pool]
) -> list[Hold]:
    """Gangs' holds with the instant there will be room as it looks now; it never moves beyond the
    end of the hold."""
    found: list[Hold] = []
    for hold in holds:
        mine = next((w for w in scene.wishes if hold.is_for(w)), None)
        pool = pools.get(hold.pool)
        at_ms = None
        if hold.why is HoldWhy.GANG and mine is not None and pool is not None:
            at_ms = room_at_ms(pool, mine.job, scene.running, scene.now_ms)
        found.append(hold if at_ms is None else replace(hold, room_ms=min(at_ms, hold.until_ms)))
    return found


def after_use(
    holds: Sequence[Hold],
    scene: Scene,
    named: Sequence[tuple[str, Entry]],
    unplaced: Mapping[str, int],
) -> list[Hold]:
    """Holds less what was placed at last of what they were for."""
    used: dict[int, int] = {}
    for key, entry in named:
        if entry.rank is Rank.HELD:
            used[entry.wish] = used.get(entry.wish, 0) + entry.copies - unplaced.get(key, 0)
    found: list[Hold] = []
    for hold in holds:
        copies = hold.copies
        for wish, placed in used.items():
            if placed > 0 and hold.is_for(scene.wishes[wish]):
                mine = min(copies, placed)
                copies -= mine
                used[wish] -= mine
        if copies:
            found.append(hold if copies == hold.copies else replace(hold, copies=copies))
    return found


def _hold(job: Job, pool: str, why: HoldWhy, since_ms: int, until_ms: int) -> Hold:
    return Hold(
        shape=shape_of(job),
        pool=pool,
        priority=job.priority,
        replicas=job.replicas,
        size=job.accelerators_per_replica,
        why=why,
        since_ms=since_ms,
        until_ms=until_ms,
        room_ms=until_ms,
        job=job.id,
    )
