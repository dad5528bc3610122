"""The types of a job's fields: how each is read from the public format and written back.

In the format a size is `64GiB` and a duration `2h30m`; in the model they are integers whose
names carry the unit. Each type refuses with a problem and a remedy, and describes itself to JSON
schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    Strict,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from federation.accelerators import AcceleratorRequest, parse_accelerators
from federation.features import WISH
from federation.ids import (
    Cluster,
    InvalidId,
    JobId,
    Region,
    Tenant,
    parse_cluster,
    parse_job_id,
    parse_region,
    parse_tenant,
)
from federation.runs import Runs, format_array, parse_array
from federation.units import (
    MICRO,
    exact_bytes,
    format_duration,
    format_utc,
    parse_bytes,
    parse_duration_s,
    parse_rfc3339_ms,
    usd_to_micro,
)

MAX_TEXT = 65_536


def refuse(problem: str, remedy: str) -> PydanticCustomError:
    """The error a validator raises: what is wrong and what would be right."""
    context = {"problem": printable(problem), "remedy": printable(remedy)}
    return PydanticCustomError("refused", "{problem}", context)


def printable(text: str) -> str:
    """`text` with lone surrogates escaped, so that any encoder can write it."""
    return text.encode("utf-8", "backslashreplace").decode()


def _reading(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`parse` with its ValueErrors (rule, remedy) told as refusals."""

    def read(value: Any) -> Any:
        try:
            return parse(value)
        except InvalidId as error:
            raise refuse(f"not a valid {error.what}", error.rule) from None
        except ValueError as error:
            rule = getattr(error, "rule", str(error))
            raise refuse(rule, getattr(error, "remedy", "see docs/job-spec.md")) from None

    return read


def bounded_bytes(limit_text: str) -> Callable[[int], int]:
    """A check that a size is at most `limit_text`."""
    limit_bytes = parse_bytes(limit_text)

    def check(size_bytes: int) -> int:
        if size_bytes > limit_bytes:
            raise refuse(f"more than {limit_text}", "check the unit")
        return size_bytes

    return check


def _at_least_one(parse: Callable[[Any], int], what: str) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = parse(value)
        if number < 1:
            raise refuse(f"{what} of nothing", "write more than 0, or leave the key out")
        return number

    return read


def _unicode(value: str) -> str:
    if not value.isascii() and printable(value) != value:
        raise refuse("not valid Unicode", "use valid Unicode text")
    return value


def at_most(entries: int) -> BeforeValidator:
    """Refuses a longer list or mapping before any entry is looked at."""

    def check(value: Any) -> Any:
        if isinstance(value, list | tuple | dict) and len(value) > entries:
            raise refuse(f"{len(value)} entries", f"use at most {entries}")
        return value

    return BeforeValidator(check)


def _text(limit: int, *, lines: bool = False) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not value or len(value) > limit:
            raise refuse(f"{len(value)} characters", f"use 1 to {limit}")
        if "\x00" in value:
            raise refuse("contains a NUL character", "leave it out")
        if not lines and not value.isprintable():
            raise refuse("contains line breaks or control characters", "use printable text")
        return value

    return check


def _milli(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse("not a number", "write a number of cpus such as 4 or 0.5")
    if not 0.001 <= value <= 4_096:
        raise refuse("outside 0.001 to 4096", "write a number of cpus such as 4 or 0.5")
    return int((Decimal(repr(value)) * 1000).to_integral_value(ROUND_CEILING))


def _from_milli(milli: int) -> int | float:
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


def _usd(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse("not a number", "write a number of USD such as 2.49, without quotes")
    return usd_to_micro(value)


def _from_micro(micro_usd: int) -> int | float:
    return micro_usd // MICRO if micro_usd % MICRO == 0 else micro_usd / MICRO


@dataclass(frozen=True, slots=True)
class Deadline:
    """When the job must have ended: at a moment, or so long after its submission (one is set)."""

    at_ms: int | None = None
    after_s: int | None = None

    def resolve_ms(self, submitted_ms: int) -> int:
        """The moment in UTC epoch ms, for a job submitted at `submitted_ms`."""
        if self.at_ms is not None:
            return self.at_ms
        return submitted_ms + (self.after_s or 0) * 1000

    def __str__(self) -> str:
        if self.at_ms is not None:
            return format_utc(self.at_ms)
        return format_duration(self.after_s or 0)


def _deadline(value: Any) -> Deadline:
    if isinstance(value, Deadline):
        return value
    remedy = "write 2026-03-01T08:00:00Z (quoted), or 12h after the submission"
    if isinstance(value, datetime) and value.tzinfo is not None:  # YAML's own timestamps
        return Deadline(at_ms=parse_rfc3339_ms(value.isoformat()))
    if not isinstance(value, str):
        raise refuse("not a time with an offset", remedy)
    if re.match(r"\s*\d{4}-", value):
        return Deadline(at_ms=parse_rfc3339_ms(value))
    try:
        return Deadline(after_s=_at_least_one(parse_duration_s, "a deadline")(value))
    except ValueError:
        raise refuse("neither a time nor a duration", remedy) from None


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The tasks of an array and how many may run at once (None = no limit)."""

    tasks: Runs
    limit: int | None = None

    def __str__(self) -> str:
        return format_array(self.tasks, self.limit)


def _array(value: Any) -> ArraySpec:
    return value if isinstance(value, ArraySpec) else ArraySpec(*parse_array(value))


def _accelerators(value: Any) -> tuple[AcceleratorRequest, ...]:
    if isinstance(value, list | tuple):
        value = [str(item) if isinstance(item, AcceleratorRequest) else item for item in value]
    return () if value == [] else parse_accelerators(value)


def _accelerators_text(value: tuple[AcceleratorRequest, ...]) -> str | list[str]:
    return str(value[0]) if len(value) == 1 else [str(item) for item in value]


def _relative_path(value: str) -> str:
    parts = value.split("/")
    if value.startswith("/") or ".." in parts or "" in parts or "." in parts:
        raise refuse(
            "not a plain path inside the job's directory", "write for example results/model.pt"
        )
    return value


def _mode(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0o777:
        return value
    if isinstance(value, str) and re.fullmatch(r"0?[0-7]{3}", value, re.ASCII):
        return int(value, 8)
    raise refuse("not a file mode", 'write "0644" or "0755"')


def _matching(pattern: str, problem: str, remedy: str) -> Callable[[str], str]:
    compiled = re.compile(pattern, re.ASCII)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise refuse(problem, remedy)
        return value

    return check


def _or_empty(check: Callable[[str], str]) -> Callable[[str], str]:
    return lambda value: check(value) if value else value


_MODE = r"0?[0-7]{3}"
_SHA256 = r"[0-9a-f]{64}"
_IMAGE = r"[\x21-\x7e]{1,512}"
_URI = r"[a-z][a-z0-9+.-]{0,31}://[\x21-\x7e]{1,2000}"
_ENV_NAME = r"(?!TRADEWIND_)[A-Za-z_][A-Za-z0-9_]{0,127}"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?"
_NAME = r"[a-z][a-z0-9-]{0,31}"
_JOB = r"j[0-9a-hjkmnp-tv-z]{16}"
_SIZE = r"[0-9]{1,20}(\.[0-9]{1,20})? ?([kKMGTPE]?B|[KMGTPE]iB)"
_DURATION = r"(?=.)([0-9]{1,12}w)?([0-9]{1,12}d)?([0-9]{1,12}h)?([0-9]{1,12}m)?([0-9]{1,12}s)?"


def _schema(pattern: str, *examples: str) -> WithJsonSchema:
    schema: dict[str, Any] = {"type": "string", "pattern": f"^{pattern}$"}
    return WithJsonSchema(schema | ({"examples": list(examples)} if examples else {}))


_AMOUNT = WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1_000_000_000})

Text = Annotated[str, Strict(), AfterValidator(_unicode)]
Line = Annotated[Text, AfterValidator(_text(1_024)), Field(min_length=1, max_length=1_024)]
Name = Annotated[Text, AfterValidator(_text(128)), Field(min_length=1, max_length=128)]
Script = Annotated[
    Text, AfterValidator(_text(MAX_TEXT, lines=True)), Field(min_length=1, max_length=MAX_TEXT)
]
Argument = Annotated[Text, AfterValidator(_or_empty(_text(MAX_TEXT, lines=True)))]
Path = Annotated[Line, AfterValidator(_relative_path)]
Sha256 = Annotated[
    Text,
    AfterValidator(_matching(_SHA256, "not a sha256", "write 64 of 0-9 and a-f")),
    _schema(_SHA256),
]
Image = Annotated[
    Text,
    AfterValidator(_matching(_IMAGE, "not an image name", "write docker://python:3.12-slim")),
    _schema(_IMAGE, "docker://python:3.12-slim"),
]
Uri = Annotated[
    Text,
    AfterValidator(_matching(_URI, "not a URI", "write for example s3://bucket/key")),
    _schema(_URI, "s3://bucket/key"),
]
EnvName = Annotated[
    Text,
    AfterValidator(
        _matching(
            _ENV_NAME,
            "not usable as a variable's name",
            "use letters, digits and _, not starting with a digit or TRADEWIND_",
        )
    ),
    _schema(_ENV_NAME, "EPOCHS"),
]
LabelKey = Annotated[
    Text,
    AfterValidator(
        _matching(
            _LABEL,
            "not usable as a label",
            "use 1 to 63 letters, digits and _ . / -, with a letter or digit at both ends",
        )
    ),
    _schema(_LABEL, "team"),
]
Feature = Annotated[
    Text,
    AfterValidator(
        _matching(
            WISH,
            "not a feature of nodes",
            "write one word, or some of which one will do: icelake|genoa",
        )
    ),
    _schema(WISH, "ib", "icelake|genoa"),
]
LabelValue = Annotated[Text, AfterValidator(_or_empty(_text(255))), Field(max_length=255)]
TenantName = Annotated[Tenant, PlainValidator(_reading(parse_tenant)), _schema(_NAME, "physics")]
ClusterName = Annotated[Cluster, PlainValidator(_reading(parse_cluster)), _schema(_NAME, "alpha")]
PlaceName = Annotated[str, PlainValidator(_reading(parse_cluster)), _schema(_NAME, "alpha")]
RegionName = Annotated[Region, PlainValidator(_reading(parse_region)), _schema(_NAME, "eu-west")]
JobRef = Annotated[JobId, PlainValidator(_reading(parse_job_id)), _schema(_JOB)]

Integer = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
Mode = Annotated[
    int,
    PlainValidator(_mode),
    PlainSerializer(lambda mode: f"{mode:04o}", return_type=str),
    _schema(_MODE, "0644", "0755"),
]
Size = Annotated[
    int,
    PlainValidator(_reading(_at_least_one(parse_bytes, "a size"))),
    PlainSerializer(exact_bytes, return_type=str),
    _schema(_SIZE, "64GiB", "500MB"),
]
Duration = Annotated[
    int,
    PlainValidator(_reading(_at_least_one(parse_duration_s, "a duration"))),
    PlainSerializer(format_duration, return_type=str),
    _schema(_DURATION, "90m", "2h30m", "1d"),
]
CpusMilli = Annotated[
    int,
    PlainValidator(_milli),
    PlainSerializer(_from_milli, return_type=int | float),
    WithJsonSchema({"type": "number", "minimum": 0.001, "maximum": 4_096}),
]
MicroUsd = Annotated[
    int,
    PlainValidator(_reading(_usd)),
    PlainSerializer(_from_micro, return_type=int | float),
    _AMOUNT,
]
DeadlineField = Annotated[
    Deadline,
    PlainValidator(_reading(_deadline)),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["2026-03-01T08:00:00Z", "12h"]}),
]
ArrayField = Annotated[
    ArraySpec,
    PlainValidator(_reading(_array)),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["0-99", "0-99%10", "1-10,20,30-40:2"]}),
]
_ONE_KIND = {"type": "string", "examples": ["H100:8", "A100-80GB:1"]}
Accelerators = Annotated[
    tuple[AcceleratorRequest, ...],
    PlainValidator(_reading(_accelerators)),
    PlainSerializer(_accelerators_text, return_type=str | list[str]),
    WithJsonSchema({"anyOf": [_ONE_KIND, {"type": "array", "items": _ONE_KIND, "maxItems": 32}]}),
]
MemorySize = Annotated[Size, AfterValidator(bounded_bytes("64TiB"))]
DiskSize = Annotated[Size, AfterValidator(bounded_bytes("1PiB"))]
