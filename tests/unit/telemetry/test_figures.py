"""Figures: counted right, documented completely, and names only for those who may know them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.api.context import Api
from broker.api.health import Health
from broker.control.observing import Observer
from broker.control.submission import Request
from broker.control.viewing import Viewer
from broker.feedback.metrics import BrokerMetrics
from broker.lifecycle.commands import Audit
from broker.model.jobs import JobPhase, Outcome, OutcomeKind
from federation.system import SystemClock
from federation.traces import KeptSpans, span_id_of, trace_id_of
from regional_agent.feedback.metrics import AgentMetrics
from regional_agent.session.events import Ended, Event, Prepared, Refused, Started
from regional_agent.status import Status
from tests.unit.control.federation import Federation, Site, until
from tests.unit.lifecycle.builders import a_job, an_attempt

PAGE = Path(__file__).resolve().parents[3] / "docs" / "telemetry.md"
STATUS = Status(
    1, "1", "eu", "eu", True, "b:1", 1, "", "", 4, 9, 2, 5, 3, 1_000, (("h100", "H100", 6, 8),), 1
)


def documented(of: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Name -> (type, labels) as the page lists them; every row says unit and meaning."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = cells[0].strip("`")
        if len(cells) != 5 or not name.startswith("tradewind_"):
            continue
        assert cells[4], f"{name} has no meaning"
        if name.startswith("tradewind_agent_") is (of == "agent"):
            found[name] = (cells[1], frozenset(re.findall(r"`(\w+)`", cells[2])))
    return found


def exposed(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Name -> (type, labels) as a scraper sees them; `le` and creation times left out."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for family in text_string_to_metric_families(text):
        if family.name.endswith("_created"):
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for s in family.samples for label in s.labels} - {"le"}
        found[name] = (family.type, frozenset(labels))
    return found


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Federation]:
    made = await Federation.make(tmp_path, Site("us-east", 4), Site("eu-west", 2))
    made.backends = replace(made.backends, spans=KeptSpans())
    await made.start()
    yield made
    await made.kill()
    await made.sites.close()


async def ran(fed: Federation, count: int, **spec: Any) -> list[str]:
    """Jobs that were submitted and have ended."""
    assert fed.plane is not None
    projection = fed.plane.services.projection
    data = [{"command": ["true"], **spec} for _ in range(count)]
    taken = await fed.plane.services.submissions().submit(
        data, Request(Viewer("ada", ("default",)), b"")
    )

    def ended() -> bool:
        found = [projection.job(job) for job in taken.ids]
        return all(job is not None and job.phase is JobPhase.ENDED for job in found)

    await until(ended)
    return [str(job) for job in taken.ids]


async def test_the_page_lists_every_figure_of_the_broker_and_no_other(
    federation: Federation,
) -> None:
    assert federation.plane is not None
    services = federation.plane.services
    federation.sites.sites["us-east"].refuse_next.append("no_capacity")
    federation.sites.sites["eu-west"].refuse_next.append("no_capacity")
    await ran(federation, 5)
    Health(Api.build(services))
    metrics = services.observer.metrics
    metrics.request_s.labels("GET", "/v1/jobs").observe(0.1)
    metrics.responses.labels(200).inc()
    federation.sites.sites["us-east"].hold = federation.sites.sites["eu-west"].hold = True
    await services.submissions().submit(
        [{"command": ["true"]} for _ in range(9)], Request(Viewer("ada", ("default",)), b"")
    )
    await until(
        lambda: "no_capacity" in {job.reason_code for job in services.projection.jobs()}
    )
    assert exposed(metrics.text(named=True).decode()) == documented("broker")


async def test_who_is_nobody_sees_no_name(federation: Federation) -> None:
    assert federation.plane is not None
    await ran(federation, 2)
    open_text = federation.plane.services.observer.metrics.text(named=False).decode()
    assert "tradewind_decision_seconds_count" in open_text
    assert "tradewind_decision_bound_usd" in open_text
    assert "tradewind_decision_objective_usd" in open_text
    for name in ("us-east", "eu-west", 'tenant="'):
        assert name not in open_text
    daggered = set(re.findall(r"`(\w+)` †", PAGE.read_text(encoding="utf-8")))
    assert {label for _, labels in exposed(open_text).values() for label in labels}.isdisjoint(
        daggered
    )


async def test_figures_count_what_happened(federation: Federation) -> None:
    assert federation.plane is not None
    federation.sites.sites["us-east"].refuse_next.append("no_capacity")
    await ran(federation, 6)
    metrics = federation.plane.services.observer.metrics
    text = metrics.text(named=True).decode()
    figures = {
        (s.name, *sorted(s.labels.values())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
    assert figures["tradewind_refusals_total", "no_capacity", "us-east"] == 1
    assert figures["tradewind_attempts_ended_total", "refused", "us-east"] == 1
    ended = [v for k, v in figures.items() if k[0] == "tradewind_attempts_ended_total"]
    placed = [v for k, v in figures.items() if k[0] == "tradewind_placements_total"]
    assert sum(ended) == sum(placed) == 7
    assert figures["tradewind_plan_honoured_ratio",] == pytest.approx(6 / 7)
    assert figures["tradewind_bounce_ratio",] == pytest.approx(1 / 7)
    assert figures["tradewind_queue_wait_seconds_count",] == 6
    assert figures["tradewind_session_connected", "eu-west"] == 1
    assert figures["tradewind_commit_items_count", "leader"] > 0
    await until(
        lambda: "tradewind_ledger_lag_seconds 0.0" in metrics.text(named=False).decode()
    )


async def test_each_job_is_a_trace_with_a_span_per_attempt(federation: Federation) -> None:
    assert federation.plane is not None
    spans = federation.backends.spans
    assert isinstance(spans, KeptSpans)
    federation.sites.sites["us-east"].refuse_next.append("no_capacity")
    jobs = await ran(federation, 3)
    (array,) = await ran(federation, 1, array="0-49")
    await until(lambda: len(spans.named("job")) == 4)
    for job in [*jobs, array]:
        mine = [s for s in spans.spans if s.attributes["tradewind.job"] == job]
        assert {s.trace_id for s in mine} == {trace_id_of(job)}
        known = {s.span_id for s in mine}
        assert all(s.parent_id in known for s in mine if s.name != "job")
        attempts = [s for s in mine if s.name == "attempt"]
        assert len([s for s in mine if s.name == "decide"]) == len(attempts)
        assert all(s.span_id == span_id_of(str(s.attributes["tradewind.attempt"]))
                   for s in attempts)  # fmt: skip
    assert len([s for s in spans.named("attempt") if s.error.startswith("refused")]) == 1
    tasks = [s for s in spans.spans if s.attributes["tradewind.job"] == array]
    assert len(tasks) < 30, "a span per slice, not per task"


async def test_a_new_leader_tells_the_same_spans_again_and_counts_nothing_twice(
    federation: Federation,
) -> None:
    spans = federation.backends.spans
    assert isinstance(spans, KeptSpans)
    await ran(federation, 2)
    await until(lambda: len(spans.named("job")) == 2)
    first = {s.span_id: s for s in spans.spans if s.name != "decide"}
    await federation.kill()
    spans.spans.clear()
    plane = await federation.start()
    await until(lambda: len(spans.named("job")) == 2)
    assert {s.span_id: s for s in spans.spans} == first
    assert "tradewind_attempts_ended_total{" not in (
        plane.services.observer.metrics.text(named=True).decode()
    )


def test_shares_are_of_placements_that_say_something() -> None:
    metrics, job = BrokerMetrics(), a_job()
    metrics.started(an_attempt(job, 1, started_ms=3_000))
    metrics.ended(an_attempt(job, 2, outcome=Outcome(OutcomeKind.REFUSED, code="paused")))
    metrics.ended(an_attempt(job, 3, outcome=Outcome(OutcomeKind.WITHDRAWN)))
    metrics.ended(an_attempt(job, 4, outcome=Outcome(OutcomeKind.LOST)))
    metrics.ended(an_attempt(job, 5, outcome=Outcome(OutcomeKind.CANCELLED)))
    text = metrics.text(named=False).decode()
    assert "tradewind_plan_honoured_ratio 0.25" in text
    assert "tradewind_bounce_ratio 0.5" in text
    for _ in range(1_000):
        metrics.started(an_attempt(job, 1, started_ms=3_000))
    assert "tradewind_plan_honoured_ratio 1.0" in metrics.text(named=False).decode()


def test_a_batch_outside_any_trace_has_no_span_of_its_own() -> None:
    spans = KeptSpans()
    observer = Observer(spans=spans)
    observer.submitted(["j1", "j2"], "", 1, 2)
    assert spans.spans == []
    observer.submitted(["j1"], "", 1, 2)
    observer.submitted(["j1", "j2"], "00-" + "a" * 32 + "-" + "b" * 16 + "-01", 1, 2)
    assert [s.attributes["tradewind.jobs"] for s in spans.spans] == [1, 2]
    observer.submitted(["j1"], "00-" + "a" * 32 + "-" + "b" * 16 + "-00", 1, 2)
    assert len(spans.spans) == 2


def test_the_page_lists_every_figure_of_the_agent_and_no_other() -> None:
    metrics = AgentMetrics(lambda: STATUS)
    for said in (Refused(1, "paused", ""), Prepared(5, 1, 2), Started(3, "x"), Ended("failed")):
        metrics.told(Event("j1-1", 1, 10, said), None)
    text = metrics.text().decode()
    assert exposed(text) == documented("agent")
    assert 'state="free"} 6.0' in text and "unacknowledged 2.0" in text
    assert 'tradewind_agent_prepare_bytes_total{source="cached"} 2.0' in text


def test_a_commit_meter_tells_size_and_time() -> None:
    metrics = BrokerMetrics()
    metrics.commits("api", SystemClock())(7)()
    text = metrics.text(named=False).decode()
    assert 'tradewind_commit_items_sum{lane="api"} 7.0' in text
    assert 'tradewind_commit_seconds_count{lane="api"} 1.0' in text


def test_under_load_successes_share_a_line_and_nothing_else_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer, job = Observer(), a_job()

    def end(kind: OutcomeKind, ended_ms: int) -> None:
        attempt = an_attempt(job, 1, outcome=Outcome(kind), started_ms=3_000, ended_ms=ended_ms)
        audit = Audit(attempt.uid, "s", "Ended", "running", "ended")
        observer.transitions([audit], lambda _: attempt)

    with caplog.at_level("INFO", logger="tradewind.jobs"):
        for _ in range(130):
            end(OutcomeKind.SUCCEEDED, 9_500)
        end(OutcomeKind.LOST, 9_600)
        end(OutcomeKind.SUCCEEDED, 10_000)
    told = [(r.getMessage(), getattr(r, "outcome", "")) for r in caplog.records]
    assert told.count(("attempt ended", "succeeded")) == 101
    assert told[100:] == [
        ("attempt ended", "lost"), ("30 more attempts succeeded", ""),
        ("attempt ended", "succeeded"),
    ]  # fmt: skip
