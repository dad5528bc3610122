"""Rules of blobs that do not depend on where they lie: names, digest and size of a stream."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from broker.feedback.ports import BlobMismatch, BlobTooLarge

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_TENANT: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")


def check_sha256(sha256: str) -> str:
    """The digest, if it is 64 lower-case hex digits (so also safe as a file name); else
    ValueError."""
    if not _SHA256.fullmatch(sha256):
        raise ValueError("a blob is named by 64 lower-case hex digits, its sha256")
    return sha256


def check_tenant(tenant: str) -> str:
    """The tenant, if well formed (so also safe as a file name); else ValueError."""
    if not _TENANT.fullmatch(tenant):
        raise ValueError("a tenant is named [a-z][a-z0-9-]{0,31}")
    return tenant


class StreamCheck:
    """Digest and size of a blob as its bytes go by."""

    def __init__(self, sha256: str, max_bytes: int) -> None:
        self.sha256 = check_sha256(sha256)
        self.size_bytes = 0
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()

    def count(self, size_bytes: int) -> None:
        """Account for bytes about to be stored. Raises `BlobTooLarge` before they are."""
        self.size_bytes += size_bytes
        if self.size_bytes > self._max_bytes:
            raise BlobTooLarge(self.sha256, self._max_bytes)

    def digest(self, data: bytes) -> None:
        """Take counted bytes into the digest; megabytes of them belong in a thread."""
        self._hash.update(data)

    def finish(self) -> None:
        """Raises `BlobMismatch` unless the bytes had the digest they came under."""
        actual = self._hash.hexdigest()
        if actual != self.sha256:
            raise BlobMismatch(self.sha256, actual)
