import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from federation.accelerators import AcceleratorRequest
from federation.jobs import (
    BlobRef,
    FileRef,
    InvalidJob,
    JobSpec,
    canonical_bytes,
    class_key,
    deadline_bucket_ms,
    parse_job_file,
    parse_job_spec,
    runtime_bucket_s,
    spec_digest,
)
from federation.units import GIB

FULL = {
    "name": "train a model", "tenant": "physics", "kind": "training",
    "command": ["python", "train.py", ""], "image": "docker://pytorch/pytorch:2.7",
    "env": {"EPOCHS": "3", "EMPTY": "", "TEXT": "zwei\nZeilen"}, "secrets": ["HF_TOKEN"],
    "workdir": {"archive": "a" * 64, "bytes": 1024},
    "files": [{"path": "conf/a.yaml", "sha256": "b" * 64, "bytes": 12, "mode": "0600"}],
    "resources": {
        "replicas": 4, "cpus": 12.5, "memory": "64GiB", "disk": "100GB",
        "accelerators": ["H100:8", "A100:8"], "accelerator_memory": "80GB",
        "topology": "rack", "isolation": "per-user",
    },
    "array": "0-99%10", "priority": 700, "deadline": "2026-03-01T08:00:00Z",
    "max_runtime": "12h", "expected_runtime": "2h30m",
    "checkpoint": {"path": "ckpt/", "interval": "15m"},
    "inputs": [{"dataset": "imagenet"}, {"uri": "s3://bucket/key", "size": "1.5TiB"}],
    "outputs": ["out/model.pt", {"path": "logs", "to": "s3://bucket/logs"}],
    "ports": [8080],
    "placement": {
        "policy": "cheap", "regions": ["eu-west"], "clusters": ["alpha"], "avoid": ["us-east"],
        "user_region": "eu-west", "max_rtt": {"to": "eu-west", "ms": 20},
        "max_price_usd_per_accelerator_hour": 2.49, "budget_usd": 500, "spot": True,
        "max_start_delay": "10m", "spread": "cluster", "anti_affinity": {"team": "a"},
    },
    "value_of_time_usd_per_hour": 12.5,
    "on_disconnect": {"replace": True, "lost_after": "20m", "reconcile": "keep_replacement"},
    "preempt_grace": "2m", "retry": {"attempts": 3, "on": ["lost", "preempted"]},
    "depends_on": ["j" + "0" * 16, {"job": "j" + "1" * 16, "when": "ended"}],
    "labels": {"team": "a", "example.com/cost-centre": "42"},
}  # fmt: skip


def spec(**changes) -> JobSpec:
    return parse_job_spec({"run": "python train.py", **changes})


def faults(data) -> dict[str, str]:
    with pytest.raises(InvalidJob) as caught:
        parse_job_spec(data)
    return {fault.path: f"{fault.problem}; {fault.remedy}" for fault in caught.value.errors}


def test_the_shortest_job_and_its_defaults():
    job = spec()
    assert (job.kind, job.priority, job.copies, job.tenant) == ("batch", 100, 1, None)
    assert (job.resources.replicas, job.resources.cpus_milli) == (1, 1000)
    assert job.resources.memory_bytes == GIB
    assert job.resources.accelerators == ()
    assert (job.retry.attempts, job.on_disconnect.replace) == (1, False)
    assert canonical_bytes(job) == b'{"run":"python train.py"}'


def test_every_key_is_read_into_units_that_its_attribute_names():
    job = parse_job_spec(FULL)
    assert job.resources.cpus_milli == 12_500
    assert job.resources.accelerators == (
        AcceleratorRequest("H100", 8),
        AcceleratorRequest("A100-40GB", 8),
        AcceleratorRequest("A100-80GB", 8),
    )
    assert job.resources.accelerator_models == ("H100", "A100-80GB")
    assert job.resources.accelerator_count == 8
    assert job.array is not None and (job.array.tasks.count, job.array.limit) == (100, 10)
    assert job.copies == 100
    assert (job.max_runtime_s, job.expected_runtime_s) == (43_200, 9_000)
    assert job.placement.max_price_micro_usd_per_accelerator_hour == 2_490_000
    assert job.files[0].mode == 0o600
    assert job.depends_on[0].when == "succeeded"
    assert job.outputs[0].to is None


def test_canonical_bytes_are_one_text_however_the_job_was_written():
    job = parse_job_spec(FULL)
    stored = canonical_bytes(job)
    assert canonical_bytes(parse_job_spec(json.loads(stored))) == stored
    assert parse_job_spec(json.loads(stored)) == job
    shuffled = dict(reversed(FULL.items()))
    shuffled["max_runtime"], shuffled["preempt_grace"] = "720m", "120s"
    assert canonical_bytes(parse_job_spec(shuffled)) == stored
    assert len(spec_digest(stored)) == 64


def test_values_written_out_that_are_defaults_leave_no_trace():
    written = spec(kind="batch", priority=100, resources={"cpus": 1, "memory": "1024MiB"}, env={})
    assert canonical_bytes(written) == canonical_bytes(spec())


@pytest.mark.parametrize(
    "data", [None, [], "run: x", 5, True, float("nan"), b"x"], ids=lambda data: repr(data)
)
def test_what_is_no_mapping_is_one_error(data):
    assert "mapping" in faults(data)[""]


def test_all_faults_are_told_at_once_with_path_and_remedy():
    told = faults({
        "recources": {}, "priority": True,
        "resources": {"memory": 64, "cpus": float("nan"), "replicas": 0, "gpu": 1},
        "placement": {"max_rtt": {"to": "EU", "ms": float("inf")}, "budget_usd": -1},
        "files": [{"path": "../x", "sha256": "short", "bytes": 1}],
        "env": {"PORT": 8080},
    })  # fmt: skip
    assert told["recources"] == "unknown key `recources`; did you mean `resources`?"
    assert "64GiB" in told["resources.memory"]
    assert "0.001 to 4096" in told["resources.cpus"]
    assert "1 or more" in told["resources.replicas"]
    assert "unknown key" in told["resources.gpu"]
    assert "whole number" in told["priority"]
    assert "finite" in told["placement.max_rtt.ms"]
    assert "placement.max_rtt.to" in told and "placement.budget_usd" in told
    assert "files[0].path" in told and "files[0].sha256" in told
    assert "quotes" in told["env.PORT"]
    assert "exactly one of run and command" in told[""]


@pytest.mark.parametrize(
    "path, value",
    [
        ("name", "a\nb"), ("name", ""), ("name", "x" * 129), ("name", 5), ("name", "\u202e"),
        ("tenant", "Root"), ("tenant", "admin"), ("kind", "cron"), ("image", "a b"),
        ("run", 5), ("run", "x" * 65_537), ("run", "a\x00b"), ("run", "\ud800"),
        ("env", {"1A": "x"}), ("env", {"A=B": "x"}), ("env", {"TRADEWIND_JOB": "x"}),
        ("env", {"A": True}), ("env", {"A": "\x00"}), ("env", []), ("env", {"\ud800": "x"}),
        ("secrets", ["A", "A"]), ("secrets", "A"), ("priority", 1001), ("priority", -1),
        ("priority", 1.0), ("priority", "1"), ("resources.replicas", 10_001),
        ("resources.cpus", 0), ("resources.cpus", "4"), ("resources.cpus", True),
        ("resources.memory", "0GiB"), ("resources.memory", "65TiB"), ("resources.disk", "1"),
        ("resources.accelerators", "H1000"), ("resources.accelerators", ""),
        ("resources.accelerators", False), ("resources.accelerators", {"H100": 8}),
        ("resources.topology", "universe"), ("resources.isolation", "soft"),
        ("array", "0-1000000"), ("array", 5), ("array", "5-1"), ("deadline", "soon"),
        ("deadline", 5), ("deadline", "0s"), ("deadline", "2026-03-01T08:00:00"),
        ("deadline", datetime(2026, 3, 1)), ("max_runtime", "11000d"), ("max_runtime", 3600),
        ("max_runtime", "0s"), ("inputs", [5]), ("outputs", ["/etc/passwd"]),
        ("outputs", ["a/../../b"]), ("ports", [0]), ("ports", [80, 80]), ("ports", 80),
        ("placement.regions", "eu-west"), ("placement.regions", []), ("placement.clusters", []),
        ("placement.regions", ["eu", "eu"]), ("placement.spot", "yes"),
        ("placement.budget_usd", "5"), ("placement.budget_usd", float("inf")),
        ("placement.spread", "wide"), ("value_of_time_usd_per_hour", 1e12),
        ("retry.attempts", 0), ("retry.on", ["succeeded"]), ("retry.on", "lost"),
        ("depends_on", ["17"]), ("labels", {"-x": "y"}), ("labels", {"x": 5}),
        ("labels", {f"l{n}": "" for n in range(65)}), ("workdir", "."), ("files", {"a": "b"}),
        ("on_disconnect.lost_after", "1"), ("checkpoint.interval", "-1m"),
    ],
    ids=lambda value: ascii(value)[:40],
)  # fmt: skip
def test_values_that_cannot_be_meant_are_refused_at_their_path(path, value):
    data: dict[str, object] = {"run": "x"}
    keys = path.split(".")
    part = data
    for key in keys[:-1]:
        part[key] = part = {}
    part[keys[-1]] = value
    assert any(told.startswith(path) or told == "" for told in faults(data))


@pytest.mark.parametrize(
    "data, hint",
    [
        ({}, "exactly one of run and command"),
        ({"run": "x", "command": ["x"]}, "exactly one of run and command"),
        ({"command": []}, "no program"),
        ({"command": [""]}, "no program"),
        ({"command": ["x", "y" * 65_000, "z" * 65_000, "w" * 2_000]}, "command takes"),
        ({"run": "x", "env": {"A": "y" * 40_000, "B": "z" * 40_000}}, "env takes"),
        ({"run": "x", "env": {"A": "1"}, "secrets": ["A"]}, "env and in secrets"),
        ({"run": "x", "max_runtime": "1h", "expected_runtime": "2h"}, "longer than"),
    ],
)
def test_rules_over_several_keys(data, hint):
    assert hint in faults(data)[""]


def test_accelerator_memory_is_held_against_the_models_named():
    assert (
        "name them"
        in faults({"run": "x", "resources": {"accelerator_memory": "24GB"}})["resources"]
    )
    told = faults({"run": "x", "resources": {"accelerators": "T4", "accelerator_memory": "24GB"}})
    assert "no accelerator named" in told["resources"]


def test_one_path_holds_one_file():
    ref = {"sha256": "a" * 64, "bytes": 1}
    assert (
        "twice" in faults({"run": "x", "files": [{"path": "a", **ref}, {"path": "a", **ref}]})[""]
    )
    assert (
        "parent"
        in faults({"run": "x", "files": [{"path": "a", **ref}, {"path": "a/b", **ref}]})[""]
    )


def test_yaml_habits_are_understood():
    assert spec(retry={"attempts": 2, True: ["lost"]}).retry.on == ("lost",)  # bare key `on`
    moment = datetime(2026, 3, 1, 9, tzinfo=timezone(timedelta(hours=1)))
    assert spec(deadline=moment) == spec(deadline="2026-03-01T08:00:00Z")
    assert (
        spec(files=[{"path": "a", "sha256": "a" * 64, "bytes": 1, "mode": 0o755}]).files[0].mode
        == 0o755
    )


def test_deadlines_are_moments_or_counted_from_the_submission():
    submitted_ms = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)
    assert spec(deadline="12h").deadline_ms(submitted_ms) == submitted_ms + 43_200_000
    assert spec(deadline="2026-03-01T08:00:00Z").deadline_ms(0) == submitted_ms + 28_800_000
    assert spec().deadline_ms(submitted_ms) is None


def test_a_spec_cannot_be_changed():
    with pytest.raises(ValidationError):
        spec().priority = 5  # type: ignore[misc]


def test_large_nonsense_is_refused_with_few_words():
    for data in (
        {str(number): number for number in range(50_000)},
        {"run": "x", "env": {str(number): number for number in range(50_000)}},
        {"run": "x", "depends_on": [1] * 200_000},
        {"run": "x" * 1_000_000},
        {"run": [[[[[["x"] * 1000] * 10] * 10]]]},
    ):
        with pytest.raises(InvalidJob) as caught:
            parse_job_spec(data)
        assert len(caught.value.errors) <= 51
        assert len(str(caught.value)) < 60_000


def test_a_job_file_names_local_paths_and_becomes_a_spec_once_they_are_uploaded():
    file = parse_job_file({
        "run": "python train.py", "workdir": "./src", "max_runtime": "2h",
        "files": {"conf/a.yaml": "~/a.yaml", "data": "/srv/data"},
    })  # fmt: skip
    assert file.local_paths() == ("./src", {"conf/a.yaml": "~/a.yaml", "data": "/srv/data"})
    refs = [
        FileRef(path="conf/a.yaml", sha256="a" * 64, bytes=5),
        FileRef(path="data/one", sha256="b" * 64, bytes=5, mode=0o755),
    ]
    archive = BlobRef(archive="c" * 64, bytes=100)
    job = file.resolved(refs, archive)
    assert job.files == tuple(refs)
    assert job.workdir == archive
    assert job.max_runtime_s == 7_200
    with pytest.raises(ValueError, match="data was not uploaded"):
        file.resolved(refs[:1], archive)
    with pytest.raises(ValueError, match="src was not uploaded"):
        file.resolved(refs, None)


def test_a_job_file_may_list_files_by_their_own_names():
    assert parse_job_file({"run": "x", "files": ["a/b.py", "c/"]}).files == {
        "b.py": "a/b.py",
        "c": "c/",
    }
    for files in (["a/x", "b/x"], [5], [".."], ["/"], {"../x": "y"}, "a"):
        with pytest.raises(InvalidJob):
            parse_job_file({"run": "x", "files": files})


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"}, {"run": "echo other"}, {"env": {"A": "1"}}, {"labels": {"a": "b"}},
        {"retry": {"attempts": 3}}, {"array": "0-9"}, {"array": "0-999%5"},
        {"max_runtime": "10001s"}, {"resources": {"accelerators": ["H200:8", "H100:8"]}},
        {"resources": {"accelerators": ["H100:8", "T4:8", "H200:8"], "accelerator_memory": "80GB"}},
        {"placement": {"regions": ["us-east", "eu-west"]}}, {"preempt_grace": "5m"},
        {"outputs": ["out"]},
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_decide_leaves_the_class_alone(changes):
    base = {
        "max_runtime": "10000s",
        "resources": {"accelerators": ["H100:8", "H200:8"]},
        "placement": {"regions": ["eu-west", "us-east"]},
    }
    assert class_key(spec(**{**base, **changes}), 3600) == class_key(spec(**base), 3600)


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant": "physics"}, {"kind": "training"}, {"image": "docker://x"}, {"priority": 101},
        {"resources": {"cpus": 2}}, {"resources": {"memory": "2GiB"}},
        {"resources": {"accelerators": "H100:8"}}, {"resources": {"replicas": 2}},
        {"resources": {"topology": "rack"}}, {"resources": {"isolation": "hard"}},
        {"max_runtime": "2h"}, {"expected_runtime": "10m"}, {"deadline": "5h"},
        {"deadline": "2026-03-01T08:00:00Z"}, {"inputs": [{"dataset": "d"}]}, {"ports": [80]},
        {"placement": {"regions": ["eu"]}}, {"placement": {"spot": True}},
        {"placement": {"budget_usd": 5}}, {"value_of_time_usd_per_hour": 1},
        {"on_disconnect": {"replace": True}}, {"checkpoint": {"path": "c", "interval": "5m"}},
    ],
    ids=str,
)  # fmt: skip
def test_what_decides_changes_the_class(changes):
    assert class_key(spec(**changes), 3600) != class_key(spec(), 3600)


def test_the_default_runtime_stands_in_and_labels_count_with_anti_affinity():
    assert class_key(spec(), 3600) == class_key(spec(max_runtime="1h"), 9)
    assert class_key(spec(), 3600) != class_key(spec(), 7200)
    apart = {"placement": {"anti_affinity": {"app": "db"}}}
    assert class_key(spec(**apart, labels={"app": "db"}), 9) != class_key(spec(**apart), 9)


def test_runtimes_round_up_by_at_most_a_tenth_and_deadlines_down():
    for seconds in (1, 2, 9, 10, 59, 60, 3599, 3600, 86_400, 2_592_000, 3653 * 86_400):
        bucket_s = runtime_bucket_s(seconds)
        assert seconds <= bucket_s <= max(seconds + 1, seconds * 1.1)
        assert runtime_bucket_s(bucket_s) == bucket_s
    assert deadline_bucket_ms(900_001) == 900_000


def test_the_json_schema_describes_the_format_people_write():
    schema = JobSpec.model_json_schema()
    assert schema["additionalProperties"] is False
    resources = schema["$defs"]["Resources"]["properties"]
    assert resources["memory"]["default"] == "1GiB"
    assert resources["memory"]["examples"] == ["64GiB", "500MB"]
    assert resources["cpus"]["type"] == "number"
    assert set(parse_job_spec(FULL).model_dump(by_alias=True)) == set(schema["properties"])
    json.dumps(JobSpec.model_json_schema(mode="serialization"))
