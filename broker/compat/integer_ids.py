"""Integers for jobs, where old tools need one.

Whoever submits in an old system's words draws a number, looks that no job has it, and stamps it on
the job as the label `integer-id`; any machine finds the job by that label. A job without the label
has a number all the same: it is derived from its id by the checksum of POSIX `cksum`, which a
script can compute too. Numbers lie between 10,000,000 and 2,010,000,000: more digits than the ids
of a young cluster, and small enough for tools that keep 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LABEL = "integer-id"
VARIABLE = "TW_INTEGER_ID"
LEAST = 10_000_000
SPAN = 2_000_000_000


def from_random(random32: int) -> int:
    """A number of 32 random bits."""
    return LEAST + random32 % SPAN


def derived(job_id: str) -> int:
    """The number of a job that carries no label."""
    return LEAST + cksum(job_id.encode()) % SPAN


def number_of(job: Mapping[str, Any]) -> int:
    """The number of a job as the API shows it: its label, else derived from its id."""
    labels = job.get("labels")
    label = labels.get(LABEL) if isinstance(labels, Mapping) else None
    if isinstance(label, str) and label.isascii() and label.isdigit() and len(label) <= 10:
        return int(label)
    return derived(str(job.get("id", "")))


def cksum(data: bytes) -> int:
    """The checksum POSIX `cksum` prints for `data`."""
    crc = 0
    length, tail = len(data), bytearray()
    while length:
        tail.append(length & 0xFF)
        length >>= 8
    for byte in data + tail:
        crc = (crc << 8 & 0xFFFFFFFF) ^ _TABLE[(crc >> 24) ^ byte]
    return crc ^ 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    table = []
    for index in range(256):
        crc = index << 24
        for _ in range(8):
            crc = (crc << 1 & 0xFFFFFFFF) ^ (0x04C11DB7 if crc & 0x80000000 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _table()
