import pytest

from federation.ids import (
    MAX_TIME_MS,
    InvalidAttemptUid,
    InvalidId,
    InvalidJobId,
    InvalidName,
    attempt_uid,
    derive_job_id,
    job_time_ms,
    make_job_id,
    parse_attempt_uid,
    parse_cluster,
    parse_job_id,
    parse_region,
    parse_tenant,
)

JOB = make_job_id(1_700_000_000_000, 12_345)


def test_a_job_id_is_seventeen_characters_that_fit_every_scheduler():
    assert len(JOB) == 17
    assert JOB[0] == "j"
    assert JOB.isalnum()
    assert JOB.lower() == JOB
    assert len(attempt_uid(JOB, 999_999_999)) <= 63


def test_a_job_id_tells_when_it_was_made():
    assert job_time_ms(JOB) == 1_700_000_000_000
    assert job_time_ms(make_job_id(MAX_TIME_MS, 0)) == MAX_TIME_MS


@pytest.mark.parametrize("now_ms, random38", [(-1, 0), (1 << 42, 0), (0, -1), (0, 1 << 38)])
def test_a_job_id_of_numbers_out_of_range_is_refused(now_ms, random38):
    with pytest.raises(ValueError, match="not valid"):
        make_job_id(now_ms, random38)


def test_ids_of_a_full_batch_are_distinct_repeatable_and_begin_with_the_first():
    batch = [derive_job_id(JOB, index) for index in range(1_000)]
    assert batch[0] == JOB
    assert len(set(batch)) == 1_000
    assert batch == [derive_job_id(JOB, index) for index in range(1_000)]
    assert {job_time_ms(job) for job in batch} == {job_time_ms(JOB)}


def test_ids_of_a_batch_are_not_serial():
    second, third = derive_job_id(JOB, 1), derive_job_id(JOB, 2)
    assert second[9:] != third[9:]
    assert derive_job_id(make_job_id(1_700_000_000_000, 12_346), 1)[9:] != second[9:]


@pytest.mark.parametrize(
    "text",
    ["", "j", "J" + JOB[1:], JOB.upper(), JOB + "0", JOB[:-1], "j" + "i" * 16, "j" + "u" * 16,
     " " + JOB, JOB + "\n", None, 7, "j\u0661" + JOB[2:]],
)  # fmt: skip
def test_what_is_not_a_job_id_is_refused_with_value_and_rule(text):
    with pytest.raises(InvalidJobId) as caught:
        parse_job_id(text)
    assert caught.value.value == text
    assert "16 of" in caught.value.rule


def test_attempt_uids_carry_job_and_number():
    assert attempt_uid(JOB, 3) == f"{JOB}-3"
    assert parse_attempt_uid(f"{JOB}-3") == (JOB, 3)


@pytest.mark.parametrize("n", [0, -1, 1_000_000_000, True])
def test_attempt_numbers_start_at_one(n):
    with pytest.raises(InvalidAttemptUid):
        attempt_uid(JOB, n)


@pytest.mark.parametrize(
    "text", [JOB, f"{JOB}-", f"{JOB}-0", f"{JOB}-01", f"{JOB}--1", f"x{JOB}-1", f"{JOB}-1 ", 5]
)
def test_what_is_not_an_attempt_uid_is_refused(text):
    with pytest.raises(InvalidAttemptUid):
        parse_attempt_uid(text)


@pytest.mark.parametrize("parse", [parse_tenant, parse_cluster, parse_region])
@pytest.mark.parametrize("name", ["a", "us-east", "c200", "a" * 32, "x-"])
def test_good_names_pass(parse, name):
    assert parse(name) == name


@pytest.mark.parametrize("parse", [parse_tenant, parse_cluster, parse_region])
@pytest.mark.parametrize(
    "name",
    [
        "",
        "A",
        "1a",
        "-a",
        "a_b",
        "a.b",
        "a" * 33,
        "a\n",
        "é",
        "root",
        "broker",
        "admin",
        None,
        1,
    ],
)
def test_bad_names_are_refused(parse, name):
    with pytest.raises(InvalidName):
        parse(name)


def test_a_refusal_names_what_and_stays_short():
    with pytest.raises(InvalidId) as caught:
        parse_tenant("X" * 10_000)
    assert "tenant" in str(caught.value)
    assert len(str(caught.value)) < 250
