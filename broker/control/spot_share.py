"""How much of what a policy governs may be on spot capacity. Pure.

The share is of all accelerators that the policy's jobs hold or wait for. What may still go to spot
is given to the oldest of them first; the rest of their copies stands in the problem apart, with no
spot allowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from broker.control.build_problem import Waiting, slots

NO_SPOT = 1_000
"""Parts of a job from this number on are those that may not use spot."""


@dataclass(frozen=True, slots=True)
class Governed:
    """Accelerators that run under policies (by name), on spot or not."""

    policies: tuple[str, ...]
    accelerators: int
    spot: bool


def with_spot_shares(waiting: Sequence[Waiting], running: Iterable[Governed]) -> list[Waiting]:
    """What waits, oldest first, split where only some of it may use spot. `running` is only looked
    at where a policy says a share."""
    if not any(w.ruling and w.ruling.spot_share for w in waiting):
        return list(waiting)
    left = _left(waiting, running)
    found: list[Waiting] = []
    for one in waiting:
        share, gang = one.ruling.spot_share if one.ruling else None, _accelerators(one)
        if share is None or not one.spec.placement.spot:
            found.append(one)
            continue
        most = min(max(int(left[share] // gang), 0), one.copies)
        left[share] -= most * gang
        found += _parts(one, most)
    return found


def with_spot_left(
    movers: Sequence[tuple[Waiting, bool]], running: Iterable[Governed]
) -> list[Waiting]:
    """What runs and may move (`True` for what is on spot now), in that order: it may use spot if it
    does already, or as far as its policy's share of all that runs is not used up."""
    if not any(one.ruling and one.ruling.spot_share for one, _ in movers):
        return [one for one, _ in movers]
    left = _left([replace(one, copies=0) for one, _ in movers], running)
    found: list[Waiting] = []
    for one, there in movers:
        share, gang = one.ruling.spot_share if one.ruling else None, _accelerators(one)
        if share is None or there or left[share] >= gang:
            if share is not None and not there:
                left[share] -= gang
            found.append(one)
        else:
            found += _parts(one, 0)
    return found


def _left(
    waiting: Sequence[Waiting], running: Iterable[Governed]
) -> dict[tuple[float, str], float]:
    """Accelerators that may still go to spot, by share and policy."""
    held, on_spot, wanted = Counter[str](), Counter[str](), Counter[str]()
    for some in running:
        for name in some.policies:
            held[name] += some.accelerators
            on_spot[name] += some.accelerators * some.spot
    shares = set()
    for one in waiting:
        if one.ruling is None:
            continue
        for name in _names(one.ruling.policies):
            wanted[name] += one.copies * _accelerators(one)
        if one.ruling.spot_share is not None:
            shares.add(one.ruling.spot_share)
    return {
        (share, name): share * (held[name] + wanted[name]) + 1e-9 - on_spot[name]
        for share, name in shares
    }


def _names(labels: Iterable[str]) -> tuple[str, ...]:
    return tuple(label.partition("@")[0] for label in labels)


def governed_by(labels: Iterable[str], accelerators: int, *, spot: bool) -> Governed:
    """Something that runs, under policies named `name@version`."""
    return Governed(_names(labels), accelerators, spot)


def _accelerators(one: Waiting) -> int:
    return one.spec.resources.replicas * slots(one.spec)[1]


def _parts(one: Waiting, most: int) -> Iterable[Waiting]:
    """So many copies as they are, and the rest without spot."""
    if most == one.copies:
        yield one
        return
    place = one.spec.placement.model_copy(update={"spot": False})
    spec = one.spec.model_copy(update={"placement": place})
    ruling = replace(one.ruling, spec=spec) if one.ruling else None
    rest = replace(one, spec=spec, ruling=ruling)
    if most == 0:
        yield rest
        return
    left = one.copies - most
    yield replace(one, copies=most, members=one.members[:most])
    yield replace(rest, copies=left, members=one.members[most:], part=NO_SPOT)
