"""Alarms as entries of the audit trail: one subject a day, so that a day is found at once."""

from __future__ import annotations

from broker.feedback.entries import AuditEntry

DAY_MS = 24 * 3600 * 1000


def alarm_subject(day: int) -> str:
    """Where the alarms of a day (days since 1970-01-01, UTC) stand."""
    return f"alarms/{day}"


def alarm_days(from_ms: int, to_ms: int) -> range:
    """The days a period touches."""
    return range(from_ms // DAY_MS, to_ms // DAY_MS + 1)


def alarm_entry(at_ms: int, text: str, who: str) -> AuditEntry:
    """An alarm as it is kept. The same text in the same second is the same alarm."""
    return AuditEntry(
        subject=alarm_subject(at_ms // DAY_MS),
        key=f"{at_ms // 1000}.{text[:200]}",
        at_ms=at_ms,
        who=who,
        what="alarm",
        why=text,
    )
