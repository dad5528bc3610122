"""Writing to the terminal: tables, sections and JSON, on a terminal or into a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {
    "succeeded": "green", "running": "cyan", "placed": "blue", "ok": "green", "yes": "green",
    "warn": "yellow", "held": "yellow", "silent": "red", "fail": "red", "failed": "red",
    "lost": "red", "refused": "red", "timed": "red", "out": "red", "CHOSEN": "bold green",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading; numbers stand `right`; long text may `fold` on a terminal;
    `styled` cells are coloured by their first word."""

    title: str
    right: bool = False
    fold: bool = False
    styled: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; one shorter than the headings is filled up with `-`."""

    columns: Sequence[Column]
    rows: list[Sequence[str]] = field(default_factory=list)
    empty: str = "nothing to show"

    def without_blank_columns(self) -> Table:
        """The table less the columns that say nothing in any row."""
        kept = [
            index
            for index, _ in enumerate(self.columns)
            if index == 0 or any(_cell(row, index) not in ("-", "") for row in self.rows)
        ]
        rows: list[Sequence[str]] = [[_cell(row, index) for index in kept] for row in self.rows]
        return Table([self.columns[index] for index in kept], rows, self.empty)


def _cell(row: Sequence[str], index: int) -> str:
    return row[index] if index < len(row) else "-"


def _console(file: IO[str], width: int | None) -> Console:
    from rich.console import Console

    if width is None and not file.isatty():
        width = 2000  # a pipe has no edge: nothing is cut or folded there
    return Console(
        file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False
    )


def render(table: Table, file: IO[str] | None = None, width: int | None = None) -> str:
    """The text of a table as `file` (stdout) would show it, without trailing blanks."""
    from rich.table import Table as RichTable
    from rich.text import Text

    if not table.rows:
        return f"{table.empty}\n"
    console = _console(file or sys.stdout, width)
    shown = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in table.columns:
        shown.add_column(
            column.title.upper(),
            justify="right" if column.right else "left",
            no_wrap=not column.fold,
            overflow="fold",
            min_width=None if column.fold else _widest(table, column),
        )
    for row in table.rows:
        cells = (_cell(row, index) for index in range(len(table.columns)))
        shown.add_row(*(
            Text(cell, style=_style(cell) if column.styled else "")
            for cell, column in zip(cells, table.columns, strict=True)
        ))  # fmt: skip
    with console.capture() as capture:
        console.print(shown)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _widest(table: Table, column: Column) -> int:
    from rich.cells import cell_len

    index = list(table.columns).index(column)
    return max(cell_len(_cell(row, index)) for row in table.rows)


def _style(cell: str) -> str:
    return _STYLES.get(cell.split(" ")[0], "")


def show(table: Table) -> None:
    """Print a table on stdout."""
    say(render(table), end="")


def say(line: str = "", *, end: str = "\n") -> None:
    """Print text on stdout, whatever characters it holds and stdout can take."""
    try:
        sys.stdout.write(line + end)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write((line + end).encode(encoding, "backslashreplace").decode(encoding))


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print `name  value` lines, aligned, leaving out what is not known."""
    known = [(name, value) for name, value in facts if value not in ("-", "")]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        say(f"{name:<{width}}  {value}")


def show_json(document: Any) -> None:
    """Print one JSON document: two spaces a level, keys in the API's order."""
    say(json.dumps(document, indent=2, ensure_ascii=False, default=str))
