"""What a tenant is told of why it waits: its own figures, others' totals, nobody's names."""

from __future__ import annotations

from broker.decide.admission.admit import Scene, Standing, admit
from broker.decide.admission.holds import Hold, HoldWhy, shape_of
from broker.decide.admission.quotas import Quota
from broker.decide.admission.words import reasons
from broker.model.admission import AdmissionRules
from broker.model.plan import Plan, PlanStatus, Unplaced
from federation.refusals import Refusal, RefusalCode
from tests.unit.decide.admission.scenes import pool, running, scene, wish

FULL = RefusalCode.NO_CAPACITY


def told(
    seen: Scene, index: int, code: RefusalCode = FULL, holds: tuple[Hold, ...] = ()
) -> Refusal:
    """What the class at `index` is told when the decision placed nothing."""
    found = admit(seen, Standing(holds=holds), AdmissionRules())
    named = [(f"k{n}", entry) for n, entry in enumerate(found.entries)]
    left = tuple(
        Unplaced(key, entry.copies, Refusal(code, "near/h100")) for key, entry in named
    )
    plan = Plan(PlanStatus.FLOOR, 0.0, None, 0.0, unplaced=left)
    rows = reasons(seen, found, (named, holds), plan)
    wishes = {key: entry.wish for key, entry in named}
    (mine,) = [row.refusal for row in rows if wishes[row.job] == index]
    return mine


def crowd(other: str, job: str) -> Scene:
    """One tenant beyond its share beside another, whose names are given."""
    held = [running("m-1", "mine", 8), running(f"{job}-1", other, 2)]
    waiting = [wish("mine", 4, id="m2"), wish(other, 40, id=job)]
    return scene(waiting, [pool(free=6)], running=held)


def test_who_is_beyond_its_share_is_told_by_how_much() -> None:
    found = told(crowd("theirs", "x"), 0)
    assert found.code is RefusalCode.FAIR_SHARE
    assert "of its share" in found.text and "mine" in found.text


def test_names_of_others_change_nothing_of_what_one_is_told() -> None:
    assert told(crowd("theirs", "x"), 0) == told(crowd("a-rival", "secret-project"), 0)


def test_names_of_a_gang_are_not_told_to_those_who_wait_for_its_room() -> None:
    gang = wish("rival", 1, 8, replicas=2, id="secret")
    hold = Hold(
        shape_of(gang.job), "near/h100", 0, 2, 8, HoldWhy.GANG, 0, 7_200_000, 3_600_000,
        model="H100",
    )  # fmt: skip
    seen = scene([gang, wish("rival", 1, id="late")], [pool(free=8)])
    found = told(seen, 1, holds=(hold,))
    assert found.code is RefusalCode.CAPACITY_HELD
    assert "secret" not in found.text and "rival" not in found.text
    assert "1970-01-01T02:00:00" in found.text and "max_runtime" in found.advice
    mine = told(seen, 0, holds=(hold,))
    assert mine.code is RefusalCode.CAPACITY_HELD and "1970-01-01T01:00:00" in mine.text


def test_a_cohorts_members_are_told_what_they_borrowed() -> None:
    quotas = [Quota("mine", 4, "lab", 2), Quota("lender", 8, "lab")]
    held = [running("m-1", "mine", 6)]
    seen = scene([wish("mine", 4)], [pool(free=10)], running=held, quotas=quotas)
    found = told(seen, 0, RefusalCode.TENANT_QUOTA)
    assert found.code is RefusalCode.BORROW_LIMIT
    assert "quota 4, 2 borrowed, no more allowed" in found.text and "lender" not in found.text


def test_other_reasons_are_left_as_they_are() -> None:
    assert told(crowd("theirs", "x"), 0, RefusalCode.WRONG_ACCELERATOR).code is (
        RefusalCode.WRONG_ACCELERATOR
    )
