"""Server-sent events, decoded from bytes as they arrive. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_PENDING_BYTES = 8 << 20
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event: its name (`message` unless said), its data, and the last id seen so far."""

    event: str
    data: str
    id: str = ""


class EventDecoder:
    """Feed bytes, get whole events. Raises ValueError on a line or event without end (8 MiB)."""

    def __init__(self) -> None:
        self._pending = b""
        self._event = ""
        self._data: list[str] = []
        self._data_size = 0
        self.last_id = ""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events completed by `chunk`."""
        self._pending += chunk
        lines = _LINE_END.split(self._pending)
        # A trailing CR may be half of a CRLF: keep it until the next byte is known.
        if self._pending.endswith(b"\r"):
            lines[-2:] = [lines[-2] + b"\r"]
        self._pending = lines.pop()
        if len(self._pending) + self._data_size > MAX_PENDING_BYTES:
            raise ValueError("an event longer than 8 MiB")
        events = []
        for line in lines:
            event = self._line(line.decode("utf-8", "replace"))
            if event is not None:
                events.append(event)
        return events

    def _line(self, line: str) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._data_size += len(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        event, data = self._event, self._data
        self._event, self._data, self._data_size = "", [], 0
        if not data and not event:
            return None
        return ServerSentEvent(event or "message", "\n".join(data), self.last_id)
