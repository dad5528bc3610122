"""What a reader of old scripts has to tell: a note for every directive, with its line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

MAX_NOTES = 2_000
MAX_SHOWN = 200


class Level(StrEnum):
    """What became of a directive. `error` = there is no job; `warning` = the job may differ."""

    UNDERSTOOD = "understood"
    TRANSLATED = "translated"
    IGNORED = "ignored"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Note:
    """One thing to tell. `line` counts from 1; 0 is the command line or the file as a whole.

    `what` is the directive as written (shortened), `text` what was made of it, or why not.
    """

    line: int
    level: Level
    what: str
    text: str

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        shown = f"{self.what}: " if self.what else ""
        return f"{place}{shown}{self.text}"


@dataclass(slots=True)
class Findings:
    """Notes as they come; sorted by line when taken. Bounded: a hostile file says no more."""

    notes: list[Note] = field(default_factory=list)

    def add(self, level: Level, line: int, what: str, text: str) -> None:
        """Tell one thing."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(Note(line, level, printable(what), printable(text)))

    def understood(self, line: int, what: str, text: str) -> None:
        """It means here what it meant there."""
        self.add(Level.UNDERSTOOD, line, what, text)

    def translated(self, line: int, what: str, text: str) -> None:
        """Said in other words here; `text` names them."""
        self.add(Level.TRANSLATED, line, what, text)

    def ignored(self, line: int, what: str, why: str) -> None:
        """Without effect here, and nothing is lost by it."""
        self.add(Level.IGNORED, line, what, why)

    def warning(self, line: int, what: str, why: str) -> None:
        """The job may run otherwise than it did there."""
        self.add(Level.WARNING, line, what, why)

    def error(self, line: int, what: str, why: str) -> None:
        """There is no right job for it."""
        if len(self.notes) >= MAX_NOTES:  # an error is never the note that is left out
            self.notes[-1] = Note(line, Level.ERROR, printable(what), printable(why))
        else:
            self.add(Level.ERROR, line, what, why)

    @property
    def failed(self) -> bool:
        """Whether there is an error."""
        return any(note.level is Level.ERROR for note in self.notes)


def in_order(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Notes by line; those of one line as they came; the same one said once."""
    return tuple(sorted(dict.fromkeys(notes), key=lambda note: note.line))


def printable(text: str) -> str:
    """`text` on one line, without control characters and lone surrogates, shortened."""
    if len(text) > MAX_SHOWN * 4:
        text = f"{text[: MAX_SHOWN * 4]}..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def short(text: str, limit: int = 80) -> str:
    """The beginning of `text`."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
