"""The suite: a list of cases, run one by one against a rig; each passes, fails or is not tried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regional_agent.act.schedulers.port import Feature, SchedulerUnavailable
from regional_agent.conformance.rig import CaseFailed, NotTried, Rig, Trial

CASE_LIMIT_S = 240.0
PASSED, FAILED, NOT_TRIED = "passed", "failed", "not tried"


@dataclass(frozen=True, slots=True)
class Case:
    """`name` is also the beginning of its attempts' uids; `says` is what holds if it passes."""

    name: str
    says: str
    features: tuple[Feature, ...]
    steps: Callable[[Trial], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`text`: why it failed or was not tried, or what was measured."""

    case: str
    says: str
    result: str
    text: str = ""


CASES: list[Case] = []


def case(
    name: str, says: str, *features: Feature
) -> Callable[[Callable[[Trial], Awaitable[str | None]]], Callable[[Trial], Awaitable[str | None]]]:
    """Add a case to the suite."""

    def add(
        steps: Callable[[Trial], Awaitable[str | None]],
    ) -> Callable[[Trial], Awaitable[str | None]]:
        CASES.append(Case(name, says, features, steps))
        return steps

    return add


async def try_case(rig: Rig, which: Case, mark: str = "c") -> Verdict:
    """Try one case. `mark` keeps the uids of this run apart from those of others."""
    scheduler = await rig.open()
    trial = Trial(rig, scheduler, f"{mark}-{which.name.replace('_', '-')}")
    result, text = PASSED, ""
    try:
        features = (await scheduler.capabilities()).features
        missing = [feature for feature in which.features if feature not in features]
        if missing:
            raise NotTried(f"this scheduler has no {', '.join(missing)}")
        async with asyncio.timeout(CASE_LIMIT_S):
            text = await which.steps(trial) or ""
    except NotTried as reason:
        result, text = NOT_TRIED, str(reason)
    except CaseFailed as fault:
        result, text = FAILED, str(fault)
    except (SchedulerUnavailable, TimeoutError, ValueError) as fault:
        result, text = FAILED, f"{type(fault).__name__}: {fault}"
    finally:
        await trial.clean_up()
    return Verdict(which.name, which.says, result, text)


async def try_all(
    rig: Rig, cases: Sequence[Case], mark: str, told: Callable[[Verdict], None] = lambda _: None
) -> list[Verdict]:
    """Try cases one after the other; `told` hears of each."""
    found: list[Verdict] = []
    for which in cases:
        found.append(await try_case(rig, which, mark))
        told(found[-1])
    return found


def as_json(kind: str, verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """A run of the suite as JSON: what the matrix of the documentation is made of."""
    return {"version": 1, "scheduler": kind, "cases": [asdict(verdict) for verdict in verdicts]}


def table(verdicts: Sequence[Verdict]) -> str:
    """A run of the suite for people."""
    head = ("CASE", "RESULT", "TEXT")
    rows = [head, *((v.case, v.result, v.text or v.says) for v in verdicts)]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    return "\n".join(
        f"{row[0].ljust(widths[0])}  {row[1].ljust(widths[1])}  {row[2]}".rstrip() for row in rows
    )
