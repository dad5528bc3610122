"""The fast `replace` gives what the one of `dataclasses` gives."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from broker.lifecycle.events import Started
from broker.model.jobs import Attempt, AttemptPhase, Intent, Job, JobPhase
from broker.model.replacing import replace
from federation.ids import AttemptUid, Cluster, JobId, Tenant
from federation.runs import InvalidRuns, Runs

JOB = JobId("j0123456789abcdef")
ATTEMPT = Attempt(
    AttemptUid(f"{JOB}-1"), JOB, Tenant("default"), Cluster("a"), "a", "cpu", 1, 1, b"t", 5
)
RECORDS: list[tuple[Any, dict[str, Any]]] = [
    (ATTEMPT, {"phase": AttemptPhase.ENDED, "ended_ms": 9}),
    (ATTEMPT, {}),
    (Job(JOB, Tenant("default"), "", "", 0, "", 1, 1), {"phase": JobPhase.ENDED}),
    (Intent(), {"cancel": True}),
    (Runs(((1, 2),)), {"runs": ((3, 4),)}),
    (Started(AttemptUid(f"{JOB}-1"), 4, 900, 9, "local"), {"event_seq": 5}),
]


@pytest.mark.parametrize(("record", "changes"), RECORDS)
def test_it_is_the_same_as_of_dataclasses(record: Any, changes: dict[str, Any]) -> None:
    made = replace(record, **changes)
    assert made == dataclasses.replace(record, **changes)
    assert made is not record and type(made) is type(record)


def test_a_name_that_is_no_field_is_refused() -> None:
    with pytest.raises(TypeError, match="no field 'colour'"):
        replace(ATTEMPT, **{"colour": "red"})  # type: ignore[arg-type]


def test_a_record_without_slots_is_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class Loose:
        at: int = 0

    with pytest.raises(TypeError, match="Loose has no slots"):
        replace(Loose(), at=1)


def test_what_the_constructor_checks_is_checked() -> None:
    with pytest.raises(InvalidRuns):
        replace(Runs(), runs=((5, 1),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(ATTEMPT).epoch = 2  # type: ignore[misc]
