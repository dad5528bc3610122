"""Ports for bytes that travel by hash: code and inputs in, outputs out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol


class BlobUnknown(Exception):
    """The source has no such blob, or will not give it to us: asking again is vain."""


class BlobUnavailable(Exception):
    """The source could not be asked, or broke off: the same fetch may succeed later."""


class BlobSource(Protocol):
    """Where blobs come from. What it yields is not trusted: the caller checks the hash."""

    def fetch(self, sha256: str) -> AsyncIterator[bytes]:
        """The blob's bytes in chunks of any size. Raises BlobUnknown or BlobUnavailable."""


class BlobSink(Protocol):
    """Where outputs go."""

    async def put(self, sha256: str, file: Path, size_bytes: int) -> None:
        """Store the file under its hash; one that is there already is no error.

        Raises BlobUnavailable; returns only when the far side has it durably.
        """
