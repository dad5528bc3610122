"""Log lines of broker and agent: JSON or text, with the same fields, and never a secret.

Fields come from `extra={...}` of a single line, or from `fields(...)` around everything that a
task and its children do.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from typing import Literal, TextIO

LogFormat = Literal["json", "text"]

# Never changed, only replaced.
_CONTEXT: ContextVar[Mapping[str, object]] = ContextVar("log_fields", default={})  # noqa: B039
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_HIDDEN = "***"
_SECRET_NAME = re.compile(r"token|secret|passw|authoriz|private|credential|cookie", re.I)
_SUSPECT = re.compile(r"tw[a-z\-]{0,8}_|://|-----BEGIN|[Bb]earer |[Bb]asic |[Tt]icket ")
"""Whatever `_SECRETS` could find has one of these in it."""
_KEY = r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*KEY-----|\Z)"
_SECRETS = (
    (re.compile(r"\b(tw_[A-Za-z0-9]+)_[A-Za-z0-9_\-]{16,}"), rf"\1_{_HIDDEN}"),
    (re.compile(r"\b(tw[a-z\-]{0,8}_)[A-Za-z0-9_\-]{24,}"), rf"\1{_HIDDEN}"),
    (re.compile(r"\b([Bb]earer|[Bb]asic|[Tt]icket) +[A-Za-z0-9+/_.=\-]{20,}"), rf"\1 {_HIDDEN}"),
    (re.compile(r"://([^/\s:@]+):[^/\s@]+@"), rf"://\1:{_HIDDEN}@"),
    (re.compile(_KEY, re.S), _HIDDEN),
)


@contextmanager
def fields(**values: object) -> Iterator[None]:
    """Put these fields on every line logged inside, also by tasks begun inside."""
    token = _CONTEXT.set({**_CONTEXT.get(), **values})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def put_fields(**values: object) -> None:
    """Put these fields on every line this task and its children log from now on."""
    _CONTEXT.set({**_CONTEXT.get(), **values})


def without_secrets(text: str) -> str:
    """`text` with tokens, passwords in URLs and private keys made unreadable."""
    for pattern, shown in _SECRETS:
        text = pattern.sub(shown, text)
    return text


class _Lines(logging.Formatter):
    """What both formats share. Looking for secrets costs more than all the rest, so a line is
    looked at once as a whole, and written again with care where anything looks like one."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line = self.written(record, _as_it_is)
        return self.written(record, without_secrets) if _SUSPECT.search(line) else line

    def written(self, record: logging.LogRecord, clean: Callable[[str], str]) -> str:
        """The line, every text of it gone through `clean`."""
        raise TypeError("a format writes lines")

    def gathered(
        self, record: logging.LogRecord, clean: Callable[[str], str]
    ) -> dict[str, object]:
        """The fields of a line, those of the line itself last."""
        own = {key: value for key, value in vars(record).items() if key not in _OWN}
        return {
            key: _HIDDEN if _names_a_secret(key) else _shown(value, clean)
            for key, value in {**_CONTEXT.get(), **own}.items()
        }

    def trouble(self, record: logging.LogRecord) -> str:
        """The traceback, if there is one."""
        return self.formatException(record.exc_info) if record.exc_info else ""


class JsonLines(_Lines):
    """One JSON object a line: ts, level, logger, message, the fields, error."""

    def written(self, record: logging.LogRecord, clean: Callable[[str], str]) -> str:
        """See above."""
        line: dict[str, object] = {
            "ts": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean(record.getMessage()),
            **self.gathered(record, clean),
        }
        if trouble := self.trouble(record):
            line["error"] = clean(trouble)
        return json.dumps(line, ensure_ascii=False)


class TextLines(_Lines):
    """For people: time, level, logger, message, then fields as name=value."""

    def written(self, record: logging.LogRecord, clean: Callable[[str], str]) -> str:
        """See above."""
        said = clean(record.getMessage())
        line = f"{_utc(record.created)} {record.levelname} {record.name}: {said}"
        fields_ = self.gathered(record, clean).items()
        given = " ".join(f"{key}={value}" for key, value in fields_)
        trouble = clean(self.trouble(record))
        return line + (f" [{given}]" if given else "") + (f"\n{trouble}" if trouble else "")


def configure(format_: LogFormat | None, stream: TextIO, *, verbose: bool) -> None:
    """Log to `stream` from now on; None is text on a terminal and JSON elsewhere."""
    chosen = format_ or ("text" if stream.isatty() else "json")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if chosen == "json" else TextLines())
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True
    )


def _as_it_is(text: str) -> str:
    return text


@cache
def _names_a_secret(key: str) -> bool:
    return _SECRET_NAME.search(key) is not None


def _shown(value: object, clean: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int | float | bool) or value is None:
        return value
    return clean(str(value))


def _utc(created_s: float) -> str:
    at = datetime.fromtimestamp(created_s, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
