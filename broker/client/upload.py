"""What a job file names on this machine, turned into references to uploaded blobs."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from broker.client.documents import MAX_BLOB_BYTES
from broker.client.errors import BadFile
from federation.jobs import BlobRef, FileRef, InvalidJob, JobFile, JobSpec
from federation.units import format_bytes


@dataclass(slots=True)
class Blob:
    """Bytes to send once, known by their hash: a file on disk, or a packed directory."""

    sha256: str
    size_bytes: int
    path: Path | None = None
    content: bytes = b""

    def open(self) -> IO[bytes]:
        """The content from its start, anew for every try; closed by who sends. Raises BadFile."""
        if self.path is None:
            return io.BytesIO(self.content)
        try:
            return self.path.open("rb")
        except OSError as error:
            raise BadFile(f"cannot read {self.path}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job ready to send: its spec, the blobs it refers to, and what the user should know."""

    spec: JobSpec
    blobs: tuple[Blob, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def prepare_job(job: JobFile, base: Path) -> Prepared:
    """The spec of `job`, its paths read relative to `base`. Nothing is sent.

    Raises BadFile when a path cannot be used, InvalidJob when the result breaks a rule.
    """
    workdir_text, sources = job.local_paths()
    files: list[FileRef] = []
    blobs: list[Blob] = []
    warnings: tuple[str, ...] = ()
    for destination, source in sources.items():
        reference, blob = _file(destination, _local(source, base))
        files.append(reference)
        blobs.append(blob)
    workdir = None
    if workdir_text is not None:
        from broker.client.snapshot import pack_directory

        archive = pack_directory(_local(workdir_text, base))
        workdir = BlobRef(archive=archive.sha256, bytes=archive.size_bytes)
        blobs.append(Blob(archive.sha256, archive.size_bytes, content=archive.content))
        warnings = archive.warnings
    return Prepared(_resolve(job, files, workdir), _once(blobs), warnings)


def _resolve(job: JobFile, files: Sequence[FileRef], workdir: BlobRef | None) -> JobSpec:
    try:
        return job.resolved(files, workdir)
    except InvalidJob:
        raise
    except ValueError as error:
        raise BadFile(f"the job cannot be sent: {error}") from None


def _once(blobs: list[Blob]) -> tuple[Blob, ...]:
    return tuple({blob.sha256: blob for blob in blobs}.values())


def _local(text: str, base: Path) -> Path:
    path = Path(text).expanduser()
    return path if path.is_absolute() else base / path


def _file(destination: str, source: Path) -> tuple[FileRef, Blob]:
    if source.is_dir():
        raise BadFile(f"{source} is a directory", "send directories with workdir")
    try:
        with source.open("rb") as content:
            found = os.fstat(content.fileno())
            if found.st_size > MAX_BLOB_BYTES:
                raise BadFile(
                    f"{source} is {format_bytes(found.st_size)}; a file sent along is at most "
                    f"{format_bytes(MAX_BLOB_BYTES)}",
                    "give big data as inputs",
                )
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise BadFile(f"cannot read {source}: {error.strerror}") from None
    mode = 0o755 if found.st_mode & 0o100 else 0o644
    reference = FileRef(path=destination, sha256=digest, bytes=found.st_size, mode=mode)
    return reference, Blob(digest, found.st_size, path=source)
