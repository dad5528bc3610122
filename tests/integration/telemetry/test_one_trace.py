"""One job, one trace: command line, broker, agent and job, as a real collector receives it."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chaos.federation import RealFederation, free_port, until
from tests.integration.telemetry.collector import Collector, Seen

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(200)]

STEPS = ("handshake", "prepare", "launch", "run")
AT_THE_SITE = {"stage": "prepare", "start": "launch", "execute": "run"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


class Watched(RealFederation):
    """A federation whose agents show figures, too."""

    figures_port = 0

    def start_agent(self, cluster: str) -> None:
        file = self.agent_dir(cluster) / "agent.yaml"
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
        self.figures_port = free_port()
        settings["metrics_listen"] = f"127.0.0.1:{self.figures_port}"
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        super().start_agent(cluster)


@pytest.fixture
def federation(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Watched]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    made = Watched(tmp_path)
    try:
        made.start("us-east")
        yield made
    finally:
        made.stop()


def submit(federation: RealFederation, *words: str, **environ: str) -> dict[str, Any]:
    """`tradewind submit --wait --json` as a person would type it."""
    ca = federation.directory / "ca.pem"
    ca.write_text(federation.call("GET", "/v1/ca")["ca_pem"], encoding="ascii")
    ran = subprocess.run(
        [str(Path(sys.executable).parent / "tradewind"), "submit", "--wait", "--json", *words],
        env={
            **os.environ, "TRADEWIND_URL": federation.url, "TRADEWIND_TOKEN": federation.token,
            "TRADEWIND_CA": str(ca), **environ,
        },
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def only(spans: list[Seen]) -> Seen:
    assert len(spans) == 1, spans
    return spans[0]


def log_of(federation: RealFederation, job: str) -> str:
    request = urllib.request.Request(federation.url + f"/v1/jobs/{job}/logs")
    request.add_header("Authorization", f"Bearer {federation.token}")
    context = ssl._create_unverified_context()  # noqa: S323  a test on loopback
    with urllib.request.urlopen(request, timeout=20, context=context) as answer:
        return str(answer.read().decode())


def test_a_job_is_one_trace_from_the_command_line_to_the_job_itself(
    federation: Watched, collector: Collector
) -> None:
    answer = submit(federation, "--", "sh", "-c", 'sleep 0.2; echo "trace=$TRACEPARENT"')
    job = answer["id"]
    until(lambda: collector.named("job") and collector.named("execute"), 20, "all spans came")
    until(lambda: len(collector.spans) >= 12, 5, "all spans came")

    client = only(collector.named("submit", "tradewind-cli"))
    assert client.parent_id == "" and client.attributes["tradewind.job"] == job
    assert {span.trace_id for span in collector.spans} == {client.trace_id}
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)
    assert collector.paths == {"/v1/traces"}

    served = only(collector.named("submit", "tradewind-broker"))
    whole = only(collector.named("job"))
    attempt = only(collector.named("attempt"))
    decided = only(collector.named("decide"))
    assert served.parent_id == whole.parent_id == client.span_id
    assert attempt.parent_id == decided.parent_id == whole.span_id
    steps = {name: only(collector.named(name, "tradewind-broker")) for name in STEPS}
    assert {step.parent_id for step in steps.values()} == {attempt.span_id}
    for name, below in AT_THE_SITE.items():
        assert only(collector.named(name, "tradewind-agent")).parent_id == steps[below].span_id

    assert log_of(federation, job).strip() == (
        f"trace=00-{client.trace_id}-{steps['run'].span_id}-01"
    )
    times = [t for name in STEPS for t in (steps[name].start_ns, steps[name].end_ns)]
    assert times == sorted(times)
    assert steps["run"].end_ns - steps["run"].start_ns >= 150_000_000
    assert not any(span.failed for span in collector.spans)
    uid = attempt.attributes["tradewind.attempt"]
    assert {s.attributes.get("tradewind.attempt") for s in steps.values()} == {uid}


def test_a_trace_that_is_there_goes_on_and_one_unsampled_tells_nobody(
    federation: Watched, collector: Collector
) -> None:
    outer = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    submit(federation, "--", "true", TRACEPARENT=outer)
    until(lambda: collector.named("job"), 20, "the job's span")
    client = only(collector.named("submit", "tradewind-cli"))
    assert client.trace_id == outer.split("-")[1] and client.parent_id == outer.split("-")[2]
    until(lambda: len(collector.spans) >= 12, 10, "all spans came")
    assert {span.trace_id for span in collector.spans} == {client.trace_id}

    before = len(collector.spans)
    quiet = outer.replace("-01", "-00").replace("0af7", "0bf7")
    answer = submit(federation, "--", "sh", "-c", 'echo "$TRACEPARENT"', TRACEPARENT=quiet)
    told = log_of(federation, answer["id"]).strip()
    assert told.startswith("00-0bf7651916cd43dd8448eb211c80319c-") and told.endswith("-00")
    assert len(collector.spans) == before


def test_jobs_of_a_batch_submitted_outside_any_trace_have_one_each(
    federation: Watched, collector: Collector
) -> None:
    jobs = federation.submit([{"command": ["true"]}, {"command": ["false"]}], "batch")
    federation.wait(jobs, 60)
    until(lambda: len(collector.named("job")) == 2, 20, "both jobs' spans")
    by_job = {span.attributes["tradewind.job"]: span for span in collector.named("job")}
    good, bad = (by_job[job] for job in jobs)
    assert good.trace_id != bad.trace_id and good.parent_id == bad.parent_id == ""
    assert bad.failed and not good.failed

    figures = f"http://127.0.0.1:{federation.figures_port}/metrics"
    with urllib.request.urlopen(figures, timeout=10) as answer:
        text = answer.read().decode()
    assert "tradewind_agent_session_connected 1.0" in text
    assert 'tradewind_agent_attempts_ended_total{outcome="succeeded"} 1.0' in text
    status = federation.call("GET", "/v1/status")
    assert status["last_24h"]["jobs"] == {"failed": 1, "succeeded": 1}
    assert [c["name"] for c in status["last_24h"]["new_clusters"]] == ["us-east"]

    lines = (federation.directory / "broker.log").read_text(encoding="utf-8").splitlines()
    told = [json.loads(line) for line in lines]
    ended = [line for line in told if line["message"] == "attempt ended"]
    assert {line["job"] for line in ended} == set(jobs)
    assert all(line["epoch"] >= 1 and line["cluster"] == "us-east" for line in ended)
    assert federation.token not in "\n".join(lines)
