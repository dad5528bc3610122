"""Refusals: every code has a disposition and reads well."""

from __future__ import annotations

import pytest

from federation.refusals import Disposition, Refusal, RefusalCode


@pytest.mark.parametrize("code", RefusalCode)
def test_every_code_has_a_disposition(code: RefusalCode) -> None:
    assert code.disposition in Disposition
    assert code.value == code.name.lower()


@pytest.mark.parametrize(
    ("code", "disposition"),
    [
        (RefusalCode.SPEC_MISMATCH, Disposition.PERMANENT),
        (RefusalCode.STALE_EPOCH, Disposition.RETRY),
        (RefusalCode.UNKNOWN_BLOB, Disposition.RETRY),
        (RefusalCode.CAPACITY_TAKEN, Disposition.ELSEWHERE),
        (RefusalCode.DRAINING, Disposition.ELSEWHERE),
        (RefusalCode.TENANT_NOT_ALLOWED, Disposition.ELSEWHERE),
    ],
)
def test_dispositions_that_others_rely_on(code: RefusalCode, disposition: Disposition) -> None:
    assert Refusal(code, "c0").disposition is disposition


def test_text_is_one_line_with_both_sides() -> None:
    refusal = Refusal(RefusalCode.OVER_BUDGET, "p0", "at most 5 USD", "7 USD", "budget_usd 7")
    assert refusal.text == "p0: over budget: needs at most 5 USD, has 7 USD; budget_usd 7"
    assert Refusal(RefusalCode.PAUSED, "c0").text == "c0: paused"
