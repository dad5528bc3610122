"""A job that is like another in all but its program is read as if it had come alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.control.admission_rules import unsupported
from broker.control.submitted_specs import SubmittedSpecs, TenantRefused
from broker.control.tenants import encode_tenant
from broker.control.viewing import Viewer
from broker.model.fleet import TenantPolicy
from broker.state import keys
from broker.state.backends.memory import MemoryStore
from broker.state.projection import Projection
from federation.jobs import (
    InvalidJob,
    JobSpec,
    canonical_bytes,
    parse_job_spec,
)
from federation.kv import Put
from federation.system import SystemClock

ADA = Viewer("ada", ("default",))
SWEEP: dict[str, Any] = {
    "resources": {"cpus": 2, "memory": "4GiB", "accelerators": ["H100:2", "A100:2"]},
    "env": {"A": "1"},
    "labels": {"team": "vision"},
    "max_runtime": "90m",
}


def a_reader() -> tuple[SubmittedSpecs, Projection]:
    clock = SystemClock()
    projection = Projection(MemoryStore(clock), on_unreadable=lambda text: None)
    return SubmittedSpecs(projection, clock), projection


def answer(reader: SubmittedSpecs, data: object, viewer: Viewer = ADA) -> object:
    """Everything that comes of reading: spec, bytes and class, or every error."""
    try:
        ready = reader.read(data, viewer)
    except InvalidJob as invalid:
        return [str(fault) for fault in invalid.errors]
    return ready.spec, ready.stored, reader.class_key(ready)


programs = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.text(max_size=140), st.sampled_from([None, 7, "a\nb", "ok"])),
        "run": st.one_of(st.text(max_size=30), st.none(), st.just(["x"])),
        "command": st.one_of(
            st.lists(st.text(max_size=5), max_size=3), st.none(), st.just("sh"), st.just([""])
        ),
    },
)
rests = st.sampled_from(
    [
        {},
        SWEEP,
        {"priority": 1},
        {"priority": True},
        {"priority": "1"},
        {"tenant": "default"},
        {"deadline": "2h"},
        {"max_runtime": "400d"},
        {"secrets": ["TOKEN"]},
        {"nonsense": 1},
        {"resources": {"cpus": 1.0}},
        {"resources": {"cpus": 1}},
    ]
)


@given(st.lists(st.tuples(rests, programs), min_size=1, max_size=8))
def test_read_after_others_or_alone_is_the_same(jobs: list[tuple[dict[str, Any], Any]]) -> None:
    together, _ = a_reader()
    for rest, program in jobs:
        data = {**rest, **program}
        alone, _ = a_reader()
        if "deadline" not in rest:  # of which the moment it is read decides
            assert answer(together, data) == answer(alone, data)


def test_stored_bytes_are_the_canonical_ones() -> None:
    reader, _ = a_reader()
    for number in range(3):
        ready = reader.read({**SWEEP, "command": ["echo", f"{number}é"]}, ADA)
        assert ready.stored == canonical_bytes(ready.spec)
        assert ready.template is not None


def test_what_this_version_does_not_do_never_depends_on_the_program() -> None:
    """Or it would have to be looked for in each job of a sweep."""

    class Pathless(JobSpec):
        def __getattribute__(self, name: str) -> Any:
            assert name not in ("name", "run", "command")
            return super().__getattribute__(name)

    whole = Pathless.model_construct(**dict(parse_job_spec({**SWEEP, "run": "x"})))
    assert unsupported(whole) == []


def test_jobs_of_a_sweep_share_what_they_have_in_common() -> None:
    reader, _ = a_reader()
    one, two = (reader.read({**SWEEP, "run": f"train {n}"}, ADA).spec for n in (1, 2))
    assert one.resources is two.resources and one.run != two.run


def test_whose_token_it_is_is_looked_at_for_each_job() -> None:
    reader, _ = a_reader()
    data = {**SWEEP, "tenant": "default", "run": "x"}
    reader.read(data, ADA)
    with pytest.raises(TenantRefused):
        reader.read({**data, "run": "y"}, Viewer("bob", ("physics",)))


def test_a_tenant_whose_limits_changed_is_read_anew() -> None:
    reader, projection = a_reader()
    data = {**SWEEP, "run": "x"}
    reader.read(data, ADA)
    short = encode_tenant(TenantPolicy("default", max_runtime_s=60, default_max_runtime_s=60))
    projection.fold_own(1, [Put(keys.tenant("default"), short)])
    with pytest.raises(InvalidJob, match="at most"):
        reader.read(data, ADA)


def test_a_relative_deadline_counts_from_each_submission() -> None:
    reader, _ = a_reader()
    ready = reader.read({"run": "x", "deadline": "2h"}, ADA)
    assert ready.template is None
