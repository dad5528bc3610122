"""What a site still has to be told: desired against confirmed, attempt by attempt. Pure.

The same answer after a lost message, a partition, a restart of either side or a change of leader.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from broker.model.jobs import Attempt, AttemptPhase, Desired


class Needed(StrEnum):
    """The one thing a site needs to hear of an attempt now."""

    NOTHING = "nothing"
    DISPATCH = "dispatch"
    ADOPT = "adopt"
    SET_SLICE = "set_slice"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Need:
    """An attempt and what its site needs to hear."""

    attempt: Attempt
    what: Needed


def needed(attempt: Attempt, *, disk_replaced: bool = False) -> Needed:
    """What to send for one attempt.

    A stop wins over everything. An attempt the site confirmed before, on a disk it no longer has,
    is only ever adopted: launching it again could run it twice.
    """
    if not attempt.live:
        return Needed.NOTHING
    if attempt.desired is Desired.STOP:
        return Needed.STOP
    if attempt.confirmed_seq < attempt.first_seq:
        confirmed_once = attempt.phase is not AttemptPhase.PLACED
        return Needed.ADOPT if confirmed_once else Needed.DISPATCH
    if disk_replaced:
        return Needed.ADOPT
    if attempt.confirmed_seq < attempt.dispatch_seq:
        return Needed.SET_SLICE
    return Needed.NOTHING


def needs(attempts: tuple[Attempt, ...], *, disk_replaced: bool = False) -> tuple[Need, ...]:
    """Everything a cluster needs to hear, in the order of its command numbers."""
    found = (Need(a, needed(a, disk_replaced=disk_replaced)) for a in attempts)
    return tuple(
        sorted(
            (need for need in found if need.what is not Needed.NOTHING),
            key=lambda need: (need.attempt.dispatch_seq, need.attempt.uid),
        )
    )
