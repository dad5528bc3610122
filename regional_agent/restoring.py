"""What an earlier life of the agent left in its journal, read back at a start."""

from __future__ import annotations

import contextlib
import logging
import secrets
from pathlib import Path

from federation.wire import session as pb
from regional_agent.act.journal import Journal, JournalCorrupt, PendingEvent
from regional_agent.session.conversation import Restored
from regional_agent.translate import remembered

_log = logging.getLogger(__name__)


def open_journal(path: Path) -> Journal:
    """The journal; one that cannot be read is set aside, and the scheduler tells what runs.

    Raises JournalInUse.
    """
    try:
        return Journal.open(path, secrets.token_hex(8))
    except JournalCorrupt as problem:
        aside = path.with_name(f"{path.name}.damaged-{secrets.token_hex(4)}")
        path.rename(aside)
        for tail in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + tail).rename(aside.with_name(aside.name + tail))
        _log.error("the journal is damaged (%s): set aside as %s", problem, aside)
        return Journal.open(path, secrets.token_hex(8))


def restored(journal: Journal) -> Restored:
    """What a journal holds, as the conversation takes it."""
    position = journal.position
    return Restored(
        rows=tuple(remembered(row) for row in journal.attempts()),
        unacknowledged={event.seq: event.uid for event in _all_events(journal)},
        event_seq=position.event_seq,
        event_seq_acked=position.event_seq_acked,
        dispatch_seq=position.dispatch_seq,
        epoch=position.epoch,
    )


def _all_events(journal: Journal) -> list[PendingEvent]:
    found: list[PendingEvent] = []
    while page := journal.events_after(found[-1].seq if found else 0):
        found.extend(page)
    return found


def pending(journal: Journal) -> list[pb.Event]:
    """Events the broker has not acknowledged, as they are sent."""
    return [pb.Event.FromString(event.payload) for event in _all_events(journal)]
