from __future__ import annotations

import pytest

from broker.feedback.blobs import StreamCheck, check_sha256, check_tenant
from broker.feedback.ports import BlobMismatch, BlobTooLarge
from tests.unit.feedback.builders import sha256_of


def test_a_stream_is_checked_as_it_goes_by() -> None:
    check = StreamCheck(sha256_of(b"abcd"), max_bytes=4)
    for part in (b"ab", b"", b"cd"):
        check.count(len(part))
        check.digest(part)
    check.finish()
    assert check.size_bytes == 4


def test_too_much_is_refused_before_it_is_stored() -> None:
    check = StreamCheck("0" * 64, max_bytes=4)
    check.count(4)
    with pytest.raises(BlobTooLarge, match="larger than 4 bytes"):
        check.count(1)


def test_the_mismatch_names_both_digests() -> None:
    check = StreamCheck("0" * 64, max_bytes=4)
    with pytest.raises(BlobMismatch, match=f"{sha256_of(b'')}, not {'0' * 64}"):
        check.finish()


def test_good_names_pass() -> None:
    assert check_sha256("ab" * 32) == "ab" * 32
    assert check_tenant("team-7") == "team-7"
