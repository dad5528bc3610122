"""A silent site's attempt is replaced when it has stopped for certain, and one result counts."""

from __future__ import annotations

import pytest

from broker.lifecycle import events as ev
from broker.lifecycle.disconnect import keeps_original, may_replace, replace_after_s
from broker.lifecycle.handlers import Rejected
from broker.lifecycle.invariants import check
from broker.lifecycle.machine import Step, step
from broker.lifecycle.reconcile import Needed, needed
from broker.model.jobs import (
    AttemptPhase,
    Desired,
    Job,
    JobPhase,
    Outcome,
    OutcomeKind,
    Reconcile,
    Terms,
)
from broker.state.codec import decode_attempt, encode_attempt
from tests.unit.lifecycle.builders import JOB, a_job, an_attempt, ended

FIRST, SECOND = f"{JOB}-1", f"{JOB}-2"
GONE = ev.ReplaceDecided(FIRST, "us-east is silent for 12m")
KEEP = Terms(reconcile=Reconcile.KEEP_ORIGINAL)
RULES = list(Reconcile)


def one(job: Job, event: ev.Event, terms: Terms = KEEP, now_ms: int = 8_000) -> Step:
    done = step(job, event, terms, now_ms)
    check(done.job)
    return done


def after(job: Job, *events: ev.Event, terms: Terms = KEEP, now_ms: int = 8_000) -> Job:
    for event in events:
        job = one(job, event, terms, now_ms).job
    return job


def running() -> Job:
    job = a_job()
    return after(
        job,
        ev.AttemptPlaced(an_attempt(job, fence_after_s=600, stop_grace_s=30)),
        ev.Accepted(FIRST, 1, 3_000, 1),
        ev.Started(FIRST, 2, 3_000, 1, "p"),
    )


def replaced() -> Job:
    """The original unknown, the replacement running elsewhere since 6 s."""
    job = after(running(), GONE)
    second = an_attempt(job, 2, cluster="far", fence_after_s=600, placed_ms=5_000)
    return after(
        job,
        ev.AttemptPlaced(second),
        ev.Accepted(SECOND, 1, 6_000, 2),
        ev.Started(SECOND, 2, 6_000, 1, "q"),
    )


def cancelled(uid: str, seq: int) -> ev.Ended:
    return ev.Ended(uid, seq, 9_500, Outcome(OutcomeKind.CANCELLED))


# When ---------------------------------------------------------------------------------------------


def test_no_sooner_than_deadline_grace_and_a_tenth() -> None:
    attempt = an_attempt(a_job(), fence_after_s=600, stop_grace_s=30)
    assert replace_after_s(attempt) == pytest.approx(693)
    assert not may_replace(attempt, 692.9)
    assert may_replace(attempt, 693.1)


def test_never_without_a_contact_deadline_at_its_site() -> None:
    assert not may_replace(an_attempt(a_job()), 1e9)
    job = after(a_job(), ev.AttemptPlaced(an_attempt(a_job())))
    with pytest.raises(Rejected):
        step(job, GONE, KEEP, 8_000)


def test_replaced_once() -> None:
    job = after(running(), GONE)
    first = job.attempt(FIRST)
    assert first is not None and not may_replace(first, 1e9)
    with pytest.raises(Rejected):
        step(job, GONE, KEEP, 8_000)


# What follows -------------------------------------------------------------------------------------


def test_it_waits_anew_and_says_why_and_the_site_is_told_to_stop_it() -> None:
    job = after(running(), GONE)
    assert (job.phase, job.reason_code) == (JobPhase.QUEUED, "site_lost")
    assert "silent" in job.reason_text
    first = job.attempt(FIRST)
    assert first is not None and first.live and first.desired is Desired.STOP
    assert needed(first) is Needed.STOP


def test_one_never_confirmed_is_not_launched_when_its_site_is_back() -> None:
    job = after(a_job(), ev.AttemptPlaced(an_attempt(a_job(), fence_after_s=60)), GONE)
    first = job.attempt(FIRST)
    assert first is not None and needed(first) is Needed.STOP


def test_the_record_remembers() -> None:
    first = after(running(), GONE).attempt(FIRST)
    assert first is not None
    kept = decode_attempt("k", encode_attempt(first))
    assert (kept.fence_after_s, kept.superseded_ms) == (600, 8_000)


def test_a_cancel_at_a_lost_site_is_over_once_it_has_stopped_for_certain() -> None:
    job = after(running(), ev.CancelAsked("ada"), GONE)
    assert job.phase is JobPhase.ENDED and job.outcome is not None
    assert job.outcome.kind is OutcomeKind.CANCELLED


def test_a_cancel_stops_both_and_waits_for_the_one_that_counts() -> None:
    job = after(replaced(), ev.CancelAsked("ada"))
    assert job.phase is JobPhase.RUNNING
    assert {a.desired for a in job.attempts} == {Desired.STOP}
    job = after(job, cancelled(SECOND, 3))
    assert job.phase is JobPhase.ENDED
    assert job.attempt(FIRST).live  # type: ignore[union-attr]  # to be metered when it is told


@pytest.mark.parametrize("rule", RULES)
def test_an_original_that_was_fenced_changes_nothing(rule: Reconcile) -> None:
    fenced = Outcome(OutcomeKind.LOST, code="fenced", text="no contact")
    job = after(replaced(), ev.Ended(FIRST, 3, 7_000, fenced), terms=Terms(reconcile=rule))
    assert job.phase is JobPhase.RUNNING and job.attempt(SECOND).counts  # type: ignore[union-attr]
    assert after(job, ended(SECOND, 3)).outcome == Outcome(OutcomeKind.SUCCEEDED)


@pytest.mark.parametrize("kind", [OutcomeKind.FAILED, OutcomeKind.LOST, OutcomeKind.TIMED_OUT])
@pytest.mark.parametrize("rule", RULES)
def test_only_a_success_is_kept(rule: Reconcile, kind: OutcomeKind) -> None:
    job = after(replaced(), ended(FIRST, 3, kind, 1), terms=Terms(reconcile=rule))
    assert job.phase is JobPhase.RUNNING


@pytest.mark.parametrize(
    ("rule", "end_ms", "kept"),
    [
        (Reconcile.KEEP_ORIGINAL, 3_001, True),
        (Reconcile.KEEP_REPLACEMENT, 9_000, False),
        (Reconcile.LONGEST_RUNNING, 5_000, True),  # 2 s, the replacement has run 2 s
        (Reconcile.LONGEST_RUNNING, 4_999, False),
    ],
)
def test_an_original_that_had_succeeded(rule: Reconcile, end_ms: int, *, kept: bool) -> None:
    told = ev.Ended(FIRST, 3, end_ms, Outcome(OutcomeKind.SUCCEEDED))
    job = after(replaced(), told, terms=Terms(reconcile=rule))
    second = job.attempt(SECOND)
    assert second is not None and second.live
    if not kept:
        assert job.phase is JobPhase.RUNNING and second.counts
        return
    assert job.phase is JobPhase.ENDED and job.outcome is not None
    assert (job.outcome.kind, FIRST in job.outcome.text) == (OutcomeKind.SUCCEEDED, True)
    assert (needed(second), second.counts) == (Needed.STOP, False)


@pytest.mark.parametrize("rule", RULES)
def test_without_a_live_replacement_the_original_counts(rule: Reconcile) -> None:
    job = after(running(), GONE, ended(FIRST, 3), terms=Terms(reconcile=rule))
    assert job.phase is JobPhase.ENDED and job.outcome is not None
    assert job.outcome.kind is OutcomeKind.SUCCEEDED


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_the_losers_end_is_metered_and_changes_nothing_else(kind: OutcomeKind) -> None:
    job = after(replaced(), ended(FIRST, 3))
    before = job.cost_micro_usd
    done = one(job, ended(SECOND, 3, kind))
    assert done.job.outcome == job.outcome and done.job.phase is JobPhase.ENDED
    assert done.job.cost_micro_usd > before
    assert [type(c).__name__ for c in done.commands] == ["Audit", "CloseAttempt"]


def test_the_originals_end_after_the_replacement_won_is_metered() -> None:
    job = after(replaced(), ended(SECOND, 3))
    assert job.phase is JobPhase.ENDED and job.attempt(FIRST).live  # type: ignore[union-attr]
    late = after(job, ended(FIRST, 3))
    assert late.outcome == job.outcome and late.cost_micro_usd > job.cost_micro_usd


def test_late_news_of_the_original_says_nothing_of_the_job() -> None:
    job = a_job()
    job = after(
        job, ev.AttemptPlaced(an_attempt(job, fence_after_s=60)), ev.Accepted(FIRST, 1, 3_000, 1)
    )
    job = after(job, GONE, ev.Started(FIRST, 2, 3_000, 1, "p"))
    assert (job.phase, job.reason_code, job.started_ms) == (JobPhase.QUEUED, "site_lost", 0)
    assert job.attempt(FIRST).phase is AttemptPhase.RUNNING  # type: ignore[union-attr]


def test_a_replacement_may_be_replaced() -> None:
    job = after(replaced(), ev.ReplaceDecided(SECOND, "far is silent for 12m"))
    third = an_attempt(job, 3, cluster="third", fence_after_s=600)
    job = after(job, ev.AttemptPlaced(third), ended(FIRST, 3))
    assert job.phase is JobPhase.ENDED
    assert [a.counts for a in job.attempts] == [False, False, False]


def test_stopped_by_its_deadline_before_the_leader_decided_it_is_tried_elsewhere() -> None:
    """The site was back a moment too early: no retry is used up, and no end of the job."""
    fenced = Outcome(OutcomeKind.LOST, code="fenced", text="no contact")
    job = after(running(), ev.Ended(FIRST, 3, 7_000, fenced))
    assert (job.phase, job.reason_code, job.retries_used) == (JobPhase.QUEUED, "site_lost", 0)
    assert [entry.cluster for entry in job.avoid] == ["us-east"]


def test_what_never_started_for_lack_of_contact_is_tried_elsewhere() -> None:
    job = after(a_job(), ev.AttemptPlaced(an_attempt(a_job(), fence_after_s=60)))
    job = after(job, ev.Refused(FIRST, 1, 3_000, 1, "fenced", "no contact"))
    assert (job.phase, job.reason_code) == (JobPhase.QUEUED, "fenced")


def test_longest_running_needs_a_replacement_that_runs() -> None:
    original = an_attempt(
        a_job(), started_ms=1, ended_ms=2, phase=AttemptPhase.ENDED,
        outcome=Outcome(OutcomeKind.SUCCEEDED),
    )  # fmt: skip
    assert keeps_original(Reconcile.LONGEST_RUNNING, original, an_attempt(a_job(), 2), 9_000)
