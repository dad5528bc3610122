"""Expressions of policies: refused with their place, bounded, and never a way past a rule."""

from __future__ import annotations

import time
from typing import Any

import pytest

from broker.control.expression_facts import SAMPLE_CLUSTER, SAMPLE_JOB, job_facts
from broker.control.expressions import (
    BadExpression,
    ExpressionFailed,
    check_expression,
    holds,
    words,
)
from broker.control.policies import govern, mutated
from broker.control.policy_text import InvalidPolicy, read_policy
from broker.model.policies import Policies, PolicyVersion
from federation.jobs import InvalidJob, JobSpec, parse_job_spec


def a_job(**more: Any) -> JobSpec:
    return parse_job_spec({"run": "x", "tenant": "physics", **more})


def in_force(*sources: str) -> Policies:
    versions = [PolicyVersion(read_policy(source), 1) for source in sources]
    return Policies({version.policy.name: version for version in versions})


@pytest.mark.parametrize(
    ("source", "job", "expected"),
    [
        ("job.tenant == 'physics'", {}, True),
        ("job.accelerator_count > 4", {"resources": {"accelerators": "H100:8"}}, True),
        ("'H100' in job.accelerators", {"resources": {"accelerators": "H100:8"}}, True),
        ("has(job.labels.team) && job.labels.team == 'a'", {}, False),
        ("has(job.labels.team) && job.labels.team == 'a'", {"labels": {"team": "a"}}, True),
        ("job.labels.exists(k, k.startsWith('x-'))", {"labels": {"x-1": "y"}}, True),
        ("job.max_runtime_h > 1.5", {"max_runtime": "2h"}, True),
        ("job.image.matches('^ghcr[.]io/')", {"image": "ghcr.io/a/b"}, True),
    ],
)
def test_what_can_be_asked_of_a_job(source: str, job: dict[str, Any], expected: bool) -> None:
    check_expression(source, SAMPLE_JOB, bool)
    assert holds(source, job_facts(a_job(**job))) is expected


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("match: {when: job.tenant == }", 2, 28, "mismatched input"),
        ("match: {when: 'job.tenant ='}", 2, 27, "token recognition error"),
        ("match:\n  when: |\n    job.tenant == 'a' &&\n    b c", 5, 7, "extraneous input 'c'"),
        ("match: {when: job.tenat == 'a'}", 2, 15, "unknown name tenat"),
        ("match: {when: tenant == 'a'}", 2, 15, "Undefined variable or function: 'tenant'"),
        ("match: {when: job.tenant}", 2, 15, "gives str, not true or false"),
        ("match: {when: true}", 2, 15, "not an expression"),
        ("require: {where: job.tenant == 'a'}", 2, 18, "Undefined variable"),
        ("mutate: {labels: {a: job.priority}}", 2, 22, "gives int, not text"),
        ("require: {hours: 22-06 UTC}", 2, 18, "not hours of the week"),
        ("require: {hours: 22:00-06:00 Mars/Olympus}", 2, 18, "no time zone Mars/Olympus"),
    ],
)
def test_faults_are_told_with_line_and_column(
    text: str, line: int, column: int, problem: str
) -> None:
    with pytest.raises(InvalidPolicy) as told:
        read_policy(f"name: p\n{text}\n")
    (fault,) = told.value.faults
    assert (fault.line, fault.column) == (line, column), str(fault)
    assert problem in fault.problem and fault.remedy


@pytest.mark.parametrize(
    "source",
    ["(" * 900 + "1" + ")" * 90, "[" * 500, "1/0 == 1", "9223372036854775807 + 1 > 0",
     "'a'.matches('(')", "job.foo()", "", " ", "true" * 400,
     "[1].map(a, [1].map(b, [1].map(c, c))) == []"],
)  # fmt: skip
def test_hostile_texts_are_refused_and_harm_nobody(source: str) -> None:
    with pytest.raises(BadExpression):
        check_expression(source, SAMPLE_JOB, bool)


def test_the_costliest_text_within_the_bounds_is_cheap() -> None:
    many = "[" + ",".join("1" for _ in range(200)) + "]"
    source = f"{many}.all(a, {many}.all(b, a == b))"
    assert len(source) <= 1_000
    began_s = time.thread_time()
    assert holds(source, SAMPLE_JOB)
    assert time.thread_time() - began_s < 2.0
    regex = "'" + "a" * 400 + "!'"
    began_s = time.thread_time()
    assert not holds(f"{regex}.matches('^(a+)+$')", SAMPLE_JOB)
    assert time.thread_time() - began_s < 0.5


def test_an_expression_without_a_value_holds_a_job_back() -> None:
    """Nothing is placed past a rule nobody can read."""
    policies = in_force("name: p\nmatch: {when: job.labels.team == 'a'}\nspot: no\n")
    assert govern(a_job(labels={"team": "a"}), policies).policies == ("p@1",)
    assert govern(a_job(labels={"team": "b"}), policies).policies == ()
    (conflict,) = govern(a_job(), policies).conflicts
    assert "there is no 'team'; ask has(...) first" in conflict.problem


def test_a_policy_that_is_named_also_asks_its_expression() -> None:
    policies = in_force("name: p\nmatch: {when: job.priority > 500}\n")
    (conflict,) = govern(a_job(placement={"policy": "p"}), policies).conflicts
    assert "its expression does not hold for it" in conflict.problem
    assert "priority" not in conflict.problem, "an expression may name others"


def test_labels_and_environment_are_written_where_the_job_says_nothing() -> None:
    policies = in_force(
        "name: p\nmatch: {}\nmutate:\n  labels: {cost-centre: '\"cc-\" + job.tenant'}\n"
        "  env: {PROXY: '\"http://p:1\"'}\n"
    )
    written = mutated(a_job(env={"A": "1"}), policies)
    assert written.labels == {"cost-centre": "cc-physics"}
    assert written.env == {"A": "1", "PROXY": "http://p:1"}
    own = a_job(labels={"cost-centre": "mine"}, env={"PROXY": "x"})
    assert mutated(own, policies) is own
    other = in_force("name: q\nmatch: {}\nmutate: {labels: {team: job.labels.group}}\n")
    with pytest.raises(InvalidJob, match="cannot write team into this job: there is no 'group'"):
        mutated(a_job(), other)
    with pytest.raises(ExpressionFailed):
        words("job.priority", SAMPLE_JOB)


def test_clusters_are_asked_by_what_they_are() -> None:
    check_expression("cluster.region.startsWith('eu-')", SAMPLE_CLUSTER, bool)
    assert holds("cluster.scheduler == 'process'", SAMPLE_CLUSTER)
