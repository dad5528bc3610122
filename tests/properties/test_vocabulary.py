"""Laws of the vocabulary: what is written reads back, what is read never surprises."""

import copy
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.accelerators import (
    ACCELERATORS,
    InvalidAccelerator,
    canonical_names,
    parse_accelerators,
)
from federation.ids import (
    MAX_TIME_MS,
    InvalidId,
    attempt_uid,
    derive_job_id,
    job_time_ms,
    make_job_id,
    parse_attempt_uid,
    parse_job_id,
)
from federation.jobs import (
    InvalidJob,
    JobFile,
    JobSpec,
    canonical_bytes,
    class_key,
    parse_job_file,
    parse_job_spec,
)
from federation.runs import InvalidRuns, Runs, format_array, parse_array, parse_runs
from federation.units import (
    MAX_BYTES,
    MAX_DURATION_S,
    InvalidQuantity,
    exact_bytes,
    format_bytes,
    format_duration,
    format_utc,
    micro_to_usd_text,
    parse_bytes,
    parse_duration_s,
    parse_rfc3339_ms,
    usd_to_micro,
)

TIMES = st.integers(0, MAX_TIME_MS)
TAILS = st.integers(0, (1 << 38) - 1)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.text(st.characters(codec=None))  # lone surrogates too: JSON can carry them
    | st.sampled_from(["64GiB", "90m", "H100:8", "0-9%3", "batch", "eu-west", "j" + "0" * 16, "x"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.sampled_from(["to", "ms", "path"]), inner)
    ),
    max_leaves=12,
)
KEYS = sorted(JobSpec.model_json_schema()["properties"])


def part_keys(definition: str) -> list[str]:
    return sorted(JobSpec.model_json_schema()["$defs"][definition]["properties"])


def near_part(definition: str) -> st.SearchStrategy[object]:
    return st.dictionaries(st.sampled_from(part_keys(definition)) | st.text(max_size=4), JSON)


NEARLY_JOBS = st.fixed_dictionaries(
    {},
    optional={
        **{key: JSON for key in KEYS},
        "run": st.just("x") | JSON,
        "resources": near_part("Resources") | JSON,
        "placement": near_part("Placement") | JSON,
        "retry": near_part("Retry") | JSON,
        "on_disconnect": near_part("OnDisconnect") | JSON,
        "files": st.lists(near_part("FileRef"), max_size=3) | JSON,
        "inputs": st.lists(near_part("Input"), max_size=3) | JSON,
        "outputs": st.lists(near_part("Output") | st.text(), max_size=3) | JSON,
        "unknown": JSON,
    },
)

SIZES = st.integers(1, 64 << 40).map(exact_bytes)
DURATIONS = st.integers(1, MAX_DURATION_S).map(format_duration)
USD = st.integers(0, 10**15).map(lambda micro: micro / 1_000_000)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True).filter(
    lambda name: name not in {"root", "broker", "admin"}
)
PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)
VALID_JOBS = st.fixed_dictionaries(
    {"run": PRINTABLE},
    optional={
        "name": PRINTABLE.map(lambda text: text[:128]),
        "tenant": NAMES,
        "kind": st.sampled_from(["batch", "training", "service", "workflow"]),
        "env": st.dictionaries(
            st.from_regex(r"[A-S][A-Z0-9_]{0,9}", fullmatch=True), PRINTABLE, max_size=3
        ),
        "resources": st.fixed_dictionaries(
            {},
            optional={
                "replicas": st.integers(1, 10_000),
                "cpus": st.integers(1, 4_096_000).map(lambda milli: milli / 1000),
                "memory": SIZES,
                "disk": SIZES,
                "accelerators": st.sampled_from(sorted(set(ACCELERATORS) - {"CPU"})).map(
                    lambda name: f"{name}:2"
                ),
                "topology": st.sampled_from(["node", "rack", "cluster"]),
            },
        ),
        "array": st.sampled_from(["0-99%10", "1,5,9", "0-999999", "3-9:2"]),
        "priority": st.integers(0, 1_000),
        "deadline": DURATIONS | TIMES.map(format_utc),
        "max_runtime": DURATIONS,
        "placement": st.fixed_dictionaries(
            {},
            optional={
                "regions": st.lists(NAMES, min_size=1, max_size=3, unique=True),
                "budget_usd": USD,
                "spot": st.booleans(),
                "max_rtt": st.fixed_dictionaries(
                    {"to": NAMES, "ms": st.floats(0.001, 10_000) | st.integers(1, 10_000)}
                ),
            },
        ),
        "value_of_time_usd_per_hour": USD,
        "preempt_grace": DURATIONS,
        "outputs": st.lists(st.from_regex(r"[a-z]{1,9}(/[a-z]{1,9})?", fullmatch=True)),
        "labels": st.dictionaries(
            st.from_regex(r"[a-z]{1,9}", fullmatch=True), PRINTABLE, max_size=3
        ),
    },
)

INDEX_SETS = st.sets(st.integers(0, 60))


def runs_of(indices: set[int]) -> Runs:
    return Runs.of((index, index) for index in indices)


# Ids ------------------------------------------------------------------------------------------


@given(TIMES, TAILS, TIMES, TAILS)
def test_job_ids_sort_as_text_by_time_then_tail(a_ms, a_tail, b_ms, b_tail):
    a, b = make_job_id(a_ms, a_tail), make_job_id(b_ms, b_tail)
    assert (a < b) == ((a_ms, a_tail) < (b_ms, b_tail))
    assert job_time_ms(a) == a_ms
    assert parse_job_id(a) == a


@given(TIMES, TAILS, st.integers(0, 10**6), st.integers(0, 10**6))
def test_derived_ids_are_distinct_and_keep_the_time(now_ms, tail, i, j):
    first = make_job_id(now_ms, tail)
    assert job_time_ms(derive_job_id(first, i)) == now_ms
    assert (derive_job_id(first, i) == derive_job_id(first, j)) == (i == j)


@given(TIMES, TAILS, st.integers(1, 999_999_999))
def test_attempt_uids_read_back(now_ms, tail, n):
    job = make_job_id(now_ms, tail)
    assert parse_attempt_uid(attempt_uid(job, n)) == (job, n)


@given(SCALARS | st.from_regex(r"j[0-9a-z]{16}(-[0-9]{1,3})?"))
def test_reading_an_id_gives_it_back_or_refuses_it(value):
    try:
        assert parse_job_id(value) == value
    except InvalidId as refusal:
        str(refusal).encode()
    try:
        job, n = parse_attempt_uid(value)
        assert attempt_uid(job, n) == value
    except InvalidId as refusal:
        str(refusal).encode()


# Units ----------------------------------------------------------------------------------------


@given(st.integers(0, MAX_BYTES))
def test_exact_sizes_read_back_and_short_ones_are_near(size):
    assert parse_bytes(exact_bytes(size)) == size
    assert abs(parse_bytes(format_bytes(size)) - size) <= size * 0.051 + 1


@given(st.integers(0, MAX_DURATION_S))
def test_durations_read_back(seconds):
    assert parse_duration_s(format_duration(seconds)) == seconds


@given(st.integers(0, 10**15))
def test_money_reads_back_as_text_and_as_float(micro_usd):
    assert usd_to_micro(micro_to_usd_text(micro_usd)) == micro_usd
    assert usd_to_micro(micro_usd / 1_000_000) == micro_usd


@given(st.integers(0, 253_402_300_799_999))
def test_times_read_back(epoch_ms):
    assert parse_rfc3339_ms(format_utc(epoch_ms)) == epoch_ms


@given(SCALARS | st.from_regex(r"[0-9.]{1,5} ?[kKMGTPEiBwdhms]{0,3}", fullmatch=True))
def test_reading_a_quantity_gives_a_number_in_bounds_or_a_refusal(value):
    for parse, most in (
        (parse_bytes, MAX_BYTES),
        (parse_duration_s, MAX_DURATION_S),
        (usd_to_micro, 10**15),
        (parse_rfc3339_ms, 10**15),
    ):
        try:
            assert 0 <= parse(value) <= most
        except InvalidQuantity as refusal:
            assert refusal.rule and refusal.remedy


# Runs -----------------------------------------------------------------------------------------


@given(INDEX_SETS, INDEX_SETS)
def test_the_algebra_of_runs_is_that_of_sets(a, b):
    x, y = runs_of(a), runs_of(b)
    assert set(x.union(y)) == a | b
    assert set(x.difference(y)) == a - b
    assert set(x.intersection(y)) == a & b
    assert list(x) == sorted(a)
    assert x.count == len(a)
    assert bool(x) == bool(a)
    assert all((index in x) == (index in a) for index in range(-1, 62))


@given(INDEX_SETS, INDEX_SETS)
def test_a_set_of_indices_has_one_form(a, b):
    x, y = runs_of(a), runs_of(b)
    assert (x == y) == (a == b)
    assert x.union(y).difference(y).union(x.intersection(y)) == x


@given(INDEX_SETS, st.integers(0, 70))
def test_taking_splits_in_order(a, n):
    head, rest = runs_of(a).take(n)
    assert list(head) == sorted(a)[:n]
    assert list(rest) == sorted(a)[n:]


@given(INDEX_SETS.filter(bool), st.none() | st.integers(1, 9_999_999))
def test_arrays_read_back(a, limit):
    assert parse_array(format_array(runs_of(a), limit)) == (runs_of(a), limit)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20), st.integers(1, 5)), min_size=1))
def test_expressions_mean_what_ranges_mean(parts):
    text = ",".join(f"{first}-{first + size}:{step}" for first, size, step in parts)
    wanted = {i for first, size, step in parts for i in range(first, first + size + 1, step)}
    assert set(parse_runs(text)) == wanted


@given(SCALARS | st.text("0123456789-,:% ", max_size=20))
def test_reading_an_array_gives_runs_or_a_refusal(value):
    try:
        tasks, limit = parse_array(value)
        assert tasks.count >= 1
        assert limit is None or limit >= 1
    except InvalidRuns as refusal:
        str(refusal).encode()


# Accelerators ---------------------------------------------------------------------------------


@given(JSON)
def test_reading_accelerators_gives_canonical_names_or_a_refusal(value):
    try:
        for request in parse_accelerators(value):
            assert canonical_names(request.name) == (request.name,)
            assert parse_accelerators(str(request)) == (request,)
    except InvalidAccelerator as refusal:
        assert refusal.rule and refusal.remedy


# Jobs -----------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(NEARLY_JOBS | JSON)
def test_any_value_is_a_job_or_a_list_of_faults(value):
    before = copy.deepcopy(value)
    for parse, model in ((parse_job_spec, JobSpec), (parse_job_file, JobFile)):
        try:
            assert isinstance(parse(value), model)
        except InvalidJob as refusal:
            assert refusal.errors
            for fault in refusal.errors:
                assert fault.problem and fault.remedy
                json.dumps(vars_of(fault), ensure_ascii=False).encode()
    assert repr(value) == repr(before)


def vars_of(fault: object) -> dict[str, str]:
    return {name: getattr(fault, name) for name in ("path", "value", "problem", "remedy")}


@settings(max_examples=200)
@given(NEARLY_JOBS | VALID_JOBS)
def test_an_accepted_job_reads_back_from_its_canonical_bytes(value):
    try:
        job = parse_job_spec(value)
    except InvalidJob:
        return
    stored = canonical_bytes(job)
    again = parse_job_spec(json.loads(stored))
    assert again == job
    assert canonical_bytes(again) == stored
    assert class_key(again, 3600) == class_key(job, 3600)


@given(VALID_JOBS)
def test_good_jobs_are_accepted_and_a_job_file_says_the_same(value):
    job = parse_job_spec(value)
    assert parse_job_file(value).resolved([], None) == job


@given(VALID_JOBS, st.sampled_from(KEYS))
def test_a_key_misspelt_is_named_with_its_right_spelling(value, key):
    wrong = key[:-1] + "x" if key.endswith("s") else key + "s"
    try:
        parse_job_spec({**value, wrong: 1})
    except InvalidJob as refusal:
        assert any(f.path == wrong and "did you mean" in f.remedy for f in refusal.errors)
    else:
        raise AssertionError("accepted")
