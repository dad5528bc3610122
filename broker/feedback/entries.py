"""What the ledger keeps: one frozen value per row.

Money is integer micro-USD, instants are UTC epoch milliseconds, durations say their unit. An
entry is written once; a second write under the same key is ignored, so everything may be
repeated after a crash.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from broker.feedback.decision_entries import GainEntry, PredictionEntry

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_TEXT_CHARS: Final = 4096
"""Free text (reasons) is cut here: a site's error message may be megabytes."""

MAX_PAGE: Final = 1000
_TRIMMED: Final = frozenset({"reason", "text", "why"})
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_INT_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntry:
    """An ended job. Key: `job`. `reason` is the closing sentence people read."""

    job: str
    tenant: str
    name: str
    created_ms: int
    ended_ms: int
    outcome: str
    spec_json: bytes = b""
    labels: tuple[tuple[str, str], ...] = ()
    kind: str = "batch"
    subject: str = ""
    priority: int = 0
    started_ms: int | None = None
    exit_code: int | None = None
    reason: str = ""
    clusters: str = ""
    attempts: int = 0
    tasks_total: int = 0
    tasks_succeeded: int = 0
    tasks_failed: int = 0
    tasks_cancelled: int = 0
    cost_micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEntry:
    """One ended try of a job, or of a slice of an array, in one cluster. Key: `uid`.

    Instants are None for steps the attempt never reached. `tasks` holds index runs
    (`0-99,120`). `cpu_time_ms`, `memory_peak_bytes` and `accelerator_busy_ms` are what was
    used; `accelerators`, `cpus_milli` and `memory_bytes` what was held. `queued` is 1 for one that
    was sent to wait in its site's queue.
    """

    uid: str
    job: str
    tenant: str
    cluster: str
    placed_ms: int
    ended_ms: int
    outcome: str
    pool: str = ""
    region: str = ""
    accelerator: str = ""
    tasks: str = ""
    width: int = 1
    reserved_ms: int | None = None
    prepared_ms: int | None = None
    started_ms: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    text: str = ""
    accelerators: int = 0
    cpus_milli: int = 0
    memory_bytes: int = 0
    price_micro_usd_per_accelerator_hour: int = 0
    cost_micro_usd: int = 0
    cpu_time_ms: int | None = None
    memory_peak_bytes: int | None = None
    accelerator_busy_ms: int | None = None
    handshake_ms: int | None = None
    prepare_ms: int | None = None
    launch_ms: int | None = None
    fetched_bytes: int | None = None
    cached_bytes: int | None = None
    queued: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptEntry:
    """Why a job was placed there, or waits. Key: (`job`, `attempt`, `cycle`).

    `attempt` is empty for the receipt of a job that was not placed. `body_json` holds the
    candidate table with every cost term.
    """

    job: str
    cycle: str
    created_ms: int
    body_json: bytes
    attempt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEntry:
    """What an attempt held from `from_ms` to `to_ms`. Key: (`attempt`, `seq`).

    `accelerator_ms` and `cpu_ms` are device- and core-milliseconds, `memory_mib_s` MiB-seconds
    (byte-milliseconds of a large job would not fit 64 bits).
    """

    attempt: str
    seq: int
    job: str
    tenant: str
    cluster: str
    pool: str
    from_ms: int
    to_ms: int
    accelerator: str = ""
    accelerator_ms: int = 0
    cpu_ms: int = 0
    memory_mib_s: int = 0
    cost_micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEntry:
    """One decision of the leader. Key: `cycle` (unique over epochs, e.g. `<epoch>-<number>`).

    `revision` is the store revision of the snapshot. Bound and gap are None where unknown.
    """

    cycle: str
    revision: int
    at_ms: int
    wall_s: float
    cpu_s: float
    status: str
    objective_micro_usd: int | None = None
    bound_micro_usd: int | None = None
    gap: float | None = None
    classes: int = 0
    considered: int = 0
    placed: int = 0
    unplaced: int = 0
    refused_by_applier: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who did what to `subject`, when and why. Key: (`subject`, `key`).

    `subject` is a job id, or the store path of another object (`policies/gold`). `key` names
    the cause, so that a repeat finds itself: `<store revision>.<index>` for what a transaction
    did.
    """

    subject: str
    key: str
    at_ms: int
    who: str
    what: str
    why: str = ""
    tenant: str = ""
    attempt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBatch:
    """Entries that become durable together, or not at all."""

    jobs: tuple[JobEntry, ...] = ()
    attempts: tuple[AttemptEntry, ...] = ()
    receipts: tuple[ReceiptEntry, ...] = ()
    usage: tuple[UsageEntry, ...] = ()
    audit: tuple[AuditEntry, ...] = ()
    cycles: tuple[CycleEntry, ...] = ()
    gains: tuple[GainEntry, ...] = ()
    predictions: tuple[PredictionEntry, ...] = ()


class JobCursor(NamedTuple):
    """A place in the list of jobs, newest first: everything after it was created earlier, or in
    the same millisecond with a lower id."""

    created_ms: int
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which ended jobs to list. None and empty mean any; all given conditions must hold.

    `created_from_ms` is inclusive, `created_to_ms` exclusive; `limit` is 1..1000.
    """

    tenant: str | None = None
    outcomes: frozenset[str] = frozenset()
    name_prefix: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    created_from_ms: int | None = None
    created_to_ms: int | None = None
    after: JobCursor | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs newest first, their `spec_json` left empty; `next` is None on the last page."""

    jobs: tuple[JobEntry, ...]
    next: JobCursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    """Usage of one tenant in one pool over a period; units as in `UsageEntry`."""

    tenant: str
    cluster: str
    pool: str
    accelerator: str
    attempts: int
    accelerator_ms: int
    cpu_ms: int
    memory_mib_s: int
    cost_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeTotal:
    """Jobs of one tenant that ended one way over a period."""

    tenant: str
    outcome: str
    jobs: int
    cost_micro_usd: int


Entry = TypeVar(
    "Entry", JobEntry, AttemptEntry, ReceiptEntry, UsageEntry, CycleEntry, AuditEntry, GainEntry,
    PredictionEntry,
)  # fmt: skip


def clean_text(text: str, *, trim: bool = False) -> str:
    """Text as every database can hold it; `trim` cuts it to `MAX_TEXT_CHARS`."""
    if trim and len(text) > MAX_TEXT_CHARS:
        text = text[: MAX_TEXT_CHARS - 1] + "…"
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def cleaned(entry: Entry) -> Entry:
    """The entry as every database can hold it.

    Text loses NUL and lone surrogates (both become U+FFFD; PostgreSQL takes neither, and a job
    with such an error message must still end), free text is cut to `MAX_TEXT_CHARS`, labels are
    sorted with one value a key. Raises ValueError for an integer beyond 64 bits or a non-finite
    number, naming the field.
    """
    changes: dict[str, Any] = {}
    for name, value in as_row(entry).items():
        clean = value
        if isinstance(value, str):
            clean = clean_text(value, trim=name in _TRIMMED)
        elif isinstance(value, tuple):
            pairs = {clean_text(key): clean_text(text) for key, text in value}
            clean = tuple(sorted(pairs.items()))
        elif isinstance(value, int | float):
            _check_number(name, value)
        if clean is not value and clean != value:
            changes[name] = clean
    return replace(entry, **changes) if changes else entry


def as_row(entry: DataclassInstance) -> dict[str, Any]:
    """The values of an entry by the names of its fields."""
    kind: Any = type(entry)
    names, read = _read(kind)
    return dict(zip(names, read(entry), strict=True))


@cache
def _read(kind: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The names of an entry's fields (two at least), and what reads all of them at once."""
    names = tuple(field.name for field in fields(kind))
    return names, attrgetter(*names)


def cleaned_batch(batch: LedgerBatch) -> LedgerBatch:
    """Every entry of the batch `cleaned`. Raises ValueError as that does."""
    return LedgerBatch(
        **{kind.name: tuple(map(cleaned, getattr(batch, kind.name))) for kind in fields(batch)}
    )


def merged(batches: Sequence[LedgerBatch]) -> LedgerBatch:
    """All entries of the batches, in order, as one batch."""
    return LedgerBatch(
        **{
            kind.name: tuple(entry for batch in batches for entry in getattr(batch, kind.name))
            for kind in fields(LedgerBatch)
        }
    )


def cleaned_filter(query: JobFilter) -> JobFilter:
    """The filter with its text `clean_text` and labels sorted.

    Raises ValueError for a limit outside 1..1000 or an instant beyond 64 bits.
    """
    if not 1 <= query.limit <= MAX_PAGE:
        raise ValueError(f"limit must be 1..{MAX_PAGE}, not {query.limit}")
    for name in ("created_from_ms", "created_to_ms"):
        _check_number(name, getattr(query, name) or 0)
    after = query.after
    if after is not None:
        _check_number("created_ms", after.created_ms)
        after = JobCursor(after.created_ms, clean_text(after.job))
    return replace(
        query,
        tenant=None if query.tenant is None else clean_text(query.tenant),
        name_prefix=clean_text(query.name_prefix),
        labels=tuple(sorted({(clean_text(k), clean_text(v)) for k, v in query.labels})),
        outcomes=frozenset(clean_text(outcome) for outcome in query.outcomes),
        after=after,
    )


def _check_number(name: str, value: int | float) -> None:
    if isinstance(value, int):
        if not -_INT_MAX <= value <= _INT_MAX:
            raise ValueError(f"{name} does not fit 64 bits: {value}")
    elif not math.isfinite(value):
        raise ValueError(f"{name} is not finite: {value}")
