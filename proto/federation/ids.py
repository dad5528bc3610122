"""The identities of the federation and the rules their text obeys.

A job id is `j` + 16 characters of an alphabet whose character order is value order, so that ids
sort as text by the time they were made: 42 bits of UTC milliseconds, then 38 random bits. An
attempt uid is `<job>-<n>`. Both fit Kubernetes names and labels, Slurm job names and Ray
submission ids unchanged.
"""

from __future__ import annotations

import hashlib
import re
from typing import NewType

JobId = NewType("JobId", str)
AttemptUid = NewType("AttemptUid", str)
Tenant = NewType("Tenant", str)
Cluster = NewType("Cluster", str)
Region = NewType("Region", str)

TIME_BITS = 42
RANDOM_BITS = 38
MAX_TIME_MS = (1 << TIME_BITS) - 1
MAX_ATTEMPT = 999_999_999
RESERVED_NAMES = frozenset({"root", "broker", "admin"})

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # ascending in ASCII: text order is value order
_VALUE = {character: value for value, character in enumerate(_ALPHABET)}
_CHARACTERS = 16
_JOB_ID = re.compile(f"j[{_ALPHABET}]{{{_CHARACTERS}}}")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_ATTEMPT = re.compile(r"(j[0-9a-z]{16})-([1-9][0-9]{0,8})")


class InvalidId(ValueError):
    """A text that breaks the rule of the identity it should be; carries both."""

    def __init__(self, what: str, value: object, rule: str) -> None:
        shown = type(value).__name__
        if isinstance(value, str):
            shown = ascii(value) if len(value) <= 80 else f"{ascii(value[:77])}..."
        super().__init__(f"{what} {shown} is not valid: {rule}")
        self.what = what
        self.value = value
        self.rule = rule


class InvalidName(InvalidId):
    """Not a name for a tenant, cluster or region."""


class InvalidJobId(InvalidId):
    """Not a job id."""


class InvalidAttemptUid(InvalidId):
    """Not an attempt uid."""


def _name(what: str, value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidName(
            what, value, "1 to 32 of a-z, 0-9 and '-', starting with a letter (lower case)"
        )
    if value in RESERVED_NAMES:
        raise InvalidName(what, value, f"{', '.join(sorted(RESERVED_NAMES))} are reserved")
    return value


def parse_tenant(value: object) -> Tenant:
    """`value` as a tenant's name; raises InvalidName."""
    return Tenant(_name("tenant", value))


def parse_cluster(value: object) -> Cluster:
    """`value` as a cluster's name; raises InvalidName."""
    return Cluster(_name("cluster", value))


def parse_region(value: object) -> Region:
    """`value` as a region's name; raises InvalidName."""
    return Region(_name("region", value))


_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]


def _encode(number: int) -> str:
    bits = range(5 * (_CHARACTERS - 2), -1, -10)
    return "j" + "".join([_PAIRS[number >> shift & 1023] for shift in bits])


def _decode(job: JobId) -> int:
    number = 0
    for character in parse_job_id(job)[1:]:
        number = number << 5 | _VALUE[character]
    return number


def make_job_id(now_ms: int, random38: int) -> JobId:
    """The id of a job made at `now_ms` (UTC epoch ms, < 2**42) with 38 random bits.

    Raises ValueError when either number is outside its range.
    """
    if not 0 <= now_ms <= MAX_TIME_MS:
        raise ValueError(f"now_ms {now_ms} is not valid: 0 to {MAX_TIME_MS}")
    if not 0 <= random38 < 1 << RANDOM_BITS:
        raise ValueError(f"random38 {random38} is not valid: 0 to 2**{RANDOM_BITS} - 1")
    return JobId(_encode(now_ms << RANDOM_BITS | random38))


def derive_job_id(first_id: JobId, index: int) -> JobId:
    """The id of the `index`-th job of a batch whose first job (index 0) is `first_id`.

    Same time part; the tail walks the 38-bit ring by an odd stride taken from the hash of
    `first_id`: ids of one batch never meet, look random, and a retry makes the same ones.
    Raises InvalidJobId, or ValueError when `index` is negative or not below 2**38.
    """
    if not 0 <= index < 1 << RANDOM_BITS:
        raise ValueError(f"index {index} is not valid: 0 to 2**{RANDOM_BITS} - 1")
    number = _decode(first_id)
    mask = (1 << RANDOM_BITS) - 1
    stride = int.from_bytes(hashlib.sha256(first_id.encode()).digest()[:8]) & mask | 1
    tail = (number + index * stride) & mask
    return JobId(_encode(number & ~mask | tail))


def parse_job_id(value: object) -> JobId:
    """`value` as a job id; raises InvalidJobId."""
    if not isinstance(value, str) or not _JOB_ID.fullmatch(value):
        raise InvalidJobId(
            "job id", value, "'j' and 16 of 0-9 and a-z without i, l, o, u (lower case)"
        )
    return JobId(value)


def job_time_ms(job: JobId) -> int:
    """When the job was made, UTC epoch ms; raises InvalidJobId."""
    return _decode(job) >> RANDOM_BITS


def attempt_uid(job: JobId, n: int) -> AttemptUid:
    """The uid of attempt `n` (from 1) of `job`; raises InvalidJobId, InvalidAttemptUid."""
    if isinstance(n, bool) or not 1 <= n <= MAX_ATTEMPT:
        raise InvalidAttemptUid("attempt uid", f"{job}-{n}", f"n is 1 to {MAX_ATTEMPT}")
    return AttemptUid(f"{parse_job_id(job)}-{n}")


def prepare_uid(job: JobId) -> AttemptUid:
    """What stands for "before any attempt" of a job: number 0, under which nothing may run.

    Raises InvalidJobId.
    """
    return AttemptUid(f"{parse_job_id(job)}-0")


def is_prepare_uid(uid: str) -> bool:
    """Whether a uid allows preparing only."""
    return uid.rpartition("-")[2] == "0"


def parse_attempt_uid(value: object) -> tuple[JobId, int]:
    """The job and the number (from 1) in an attempt uid; raises InvalidAttemptUid."""
    match = _ATTEMPT.fullmatch(value) if isinstance(value, str) else None
    if match is None or not _JOB_ID.fullmatch(match[1]):
        raise InvalidAttemptUid(
            "attempt uid", value, "a job id, '-', and a number from 1 without leading zeros"
        )
    return JobId(match[1]), int(match[2])
