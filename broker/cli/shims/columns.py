"""Columns of squeue and sinfo (`%.18i %9P`) and of sacct (`JobID%12,State`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.cli.exits import Exit, Failure

Thing = TypeVar("Thing")
_FIELD = re.compile(r"%(\.?)([0-9]{0,4})([A-Za-z%])")
_NAMED = re.compile(r"([A-Za-z_]+)(?:[%:](\.?)([+-]?)([0-9]{0,4}))?")


@dataclass(frozen=True, slots=True)
class Field(Generic[Thing]):
    """A heading and how its value is read off a thing."""

    title: str
    value: Callable[[Thing], str]
    width: int = 10


def by_letters(
    format_text: str, fields: Mapping[str, Field[Thing]], program: str
) -> _Line[Thing]:
    """The line of a format such as `%.18i %.9P`. Raises Failure for a letter that is unknown."""
    parts: list[str | _Cell[Thing]] = []
    at = 0
    for match in _FIELD.finditer(format_text):
        parts.append(format_text[at : match.start()])
        at = match.end()
        if match[3] == "%":
            parts.append("%")
            continue
        field = fields.get(match[3])
        if field is None:
            raise Failure(Exit.BAD_INPUT, f"{program}: %{match[3]} is not known here")
        parts.append(_Cell(field, int(match[2] or 0), right=bool(match[1])))
    parts.append(format_text[at:])
    return _Line(parts)


def by_names(
    format_text: str, fields: Mapping[str, Field[Thing]], program: str, *, left: bool
) -> list[_Cell[Thing]]:
    """The cells of a list such as `JobID%-12,State` or `JobID:.12,State`; Failure as above.

    `left` = columns stand left unless they say otherwise, and what is cut is not marked.
    """
    cells = []
    for part in filter(None, (text.strip() for text in format_text.split(","))):
        match = _NAMED.fullmatch(part)
        field = fields.get(match[1].lower()) if match else None
        if match is None or field is None:
            raise Failure(Exit.BAD_INPUT, f"{program}: the field {part} is not known here")
        width = int(match[4] or field.width)
        to_left = not match[2] if left else match[3] == "-"
        cells.append(_Cell(field, width, right=not to_left, marked=not left))
    return cells


@dataclass(frozen=True, slots=True)
class _Cell(Generic[Thing]):
    field: Field[Thing]
    width: int
    right: bool
    marked: bool = False

    def heading(self) -> str:
        """The heading, as wide as the column."""
        return self.fit(self.field.title)

    def text(self, thing: Thing) -> str:
        """The value, as wide as the column."""
        return self.fit(self.field.value(thing))

    def fit(self, text: str) -> str:
        """`text` cut and filled to the width; a cut one of sacct ends in +."""
        if not self.width:
            return text
        if len(text) > self.width:
            return f"{text[: self.width - 1]}+" if self.marked else text[: self.width]
        return text.rjust(self.width) if self.right else text.ljust(self.width)


@dataclass(frozen=True, slots=True)
class _Line(Generic[Thing]):
    parts: Sequence[str | _Cell[Thing]]

    def heading(self) -> str:
        """The line of headings."""
        return "".join(p if isinstance(p, str) else p.heading() for p in self.parts)

    def text(self, thing: Thing) -> str:
        """The line of one thing."""
        return "".join(p if isinstance(p, str) else p.text(thing) for p in self.parts)
