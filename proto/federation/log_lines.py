"""Log lines of broker and agent: JSON or text, with the same fields, and never a secret.

Fields come from `extra={...}` of a single line, or from `fields(...)` around everything that a
task and its children do.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal, TextIO

LogFormat = Literal["json", "text"]

# Never changed, only replaced.
_CONTEXT: ContextVar[Mapping[str, object]] = ContextVar("log_fields", default={})  # noqa: B039
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_HIDDEN = "***"
_SECRET_NAME = re.compile(r"token|secret|passw|authoriz|private|credential|cookie", re.I)
_KEY = r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*KEY-----|\Z)"
_SECRETS = (
    (re.compile(r"\b(tw_[A-Za-z0-9]+)_[A-Za-z0-9_\-]{16,}"), rf"\1_{_HIDDEN}"),
    (re.compile(r"\b(tw[a-z\-]{0,8}_)[A-Za-z0-9_\-]{24,}"), rf"\1{_HIDDEN}"),
    (re.compile(r"\b(Bearer|Basic|Ticket)\s+[A-Za-z0-9+/_.=\-]{20,}", re.I), rf"\1 {_HIDDEN}"),
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
    """What both formats share."""

    def gathered(self, record: logging.LogRecord) -> dict[str, object]:
        """The fields of a line, those of the line itself last."""
        own = {key: value for key, value in vars(record).items() if key not in _OWN}
        return {
            key: _HIDDEN if _SECRET_NAME.search(key) else _shown(value)
            for key, value in {**_CONTEXT.get(), **own}.items()
        }

    def trouble(self, record: logging.LogRecord) -> str:
        """The traceback, if there is one."""
        text = self.formatException(record.exc_info) if record.exc_info else ""
        return without_secrets(text)


class JsonLines(_Lines):
    """One JSON object a line: ts, level, logger, message, the fields, error."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line: dict[str, object] = {
            "ts": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            **self.gathered(record),
        }
        if trouble := self.trouble(record):
            line["error"] = trouble
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(_Lines):
    """For people: time, level, logger, message, then fields as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        said = without_secrets(record.getMessage())
        line = f"{_utc(record.created)} {record.levelname} {record.name}: {said}"
        given = " ".join(f"{key}={value}" for key, value in self.gathered(record).items())
        trouble = self.trouble(record)
        return line + (f" [{given}]" if given else "") + (f"\n{trouble}" if trouble else "")


def configure(format_: LogFormat | None, stream: TextIO, *, verbose: bool) -> None:
    """Log to `stream` from now on; None is text on a terminal and JSON elsewhere."""
    chosen = format_ or ("text" if stream.isatty() else "json")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if chosen == "json" else TextLines())
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True
    )


def _shown(value: object) -> object:
    if isinstance(value, str):
        return without_secrets(value)
    return value if isinstance(value, int | float | bool) or value is None else str(value)


def _utc(created_s: float) -> str:
    at = datetime.fromtimestamp(created_s, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
