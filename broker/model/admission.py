"""The rules of admission as one value: see docs/fair-share.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Preempt(StrEnum):
    """Who may be stopped for whom, beside borrowers for whoever they borrowed from."""

    NEVER = "never"
    LOWER_PRIORITY = "lower_priority"


@dataclass(frozen=True, slots=True)
class MovingRules:
    """When what runs moves to a better place: see docs/moving.md. At most `most` jobs at a look
    (0 = none ever), a look at most every `look_s`, a job no sooner than `gap_s` after its last
    move. A move must save at least `saving_min_usd`, and `saving_share` of what the rest of the run
    costs where it is, after all that restarting costs."""

    most: int = 5
    look_s: float = 60.0
    gap_s: float = 3600.0
    saving_share: float = 0.1
    saving_min_usd: float = 1.0


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """`half_life_s`: after so long the past counts half. `patience_s`: who waited longer goes
    before others in its turn, and a gang gets capacity kept. `hold_max_s`: how long at most.
    `recovery_s`: how long it is kept for a gang that lost a member. `disturbed_share_max`: of all
    accelerators in use, what one cycle may take from those who use them without an operator."""

    half_life_s: float = 7 * 24 * 3600.0
    preempt: Preempt = Preempt.NEVER
    patience_s: float = 600.0
    hold_max_s: float = 24 * 3600.0
    recovery_s: float = 300.0
    disturbed_share_max: float = 0.1
    moving: MovingRules = MovingRules()
