"""What runs of a local federation now, in a file: so that a second command finds it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from broker.local.layout import Home
from broker.local.processes import Process, process_from
from federation.private_files import write_private

VERSION = 1


@dataclass(frozen=True, slots=True)
class Record:
    """`processes` by name: etcd, broker, and agents by cluster."""

    supervisor: Process | None
    url: str
    processes: dict[str, Process] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            "version": VERSION,
            "url": self.url,
            "supervisor": self.supervisor.as_json() if self.supervisor else None,
            "processes": {name: p.as_json() for name, p in self.processes.items()},
        }


def write_record(home: Home, record: Record) -> None:
    """Replace the record. Raises OSError."""
    write_private(home.record, json.dumps(record.as_json(), indent=1).encode())


def read_record(home: Home) -> Record | None:
    """The record; None where there is none or it cannot be read."""
    try:
        value = json.loads(home.record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(value, dict) or value.get("version") != VERSION:
        return None
    named = value.get("processes")
    found = {
        str(name): process
        for name, text in (named.items() if isinstance(named, dict) else ())
        if (process := process_from(text)) is not None
    }
    return Record(process_from(value.get("supervisor")), str(value.get("url", "")), found)


def remove_record(home: Home) -> None:
    """Say that nothing runs; also to the command line."""
    home.record.unlink(missing_ok=True)
    home.client.unlink(missing_ok=True)
