"""`tradewind import`: what a file of another system means as a job, line by line; no broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.cli.exits import Exit, Failure
from broker.cli.options import Json
from broker.cli.output import Column, Table, say, show, show_json
from broker.compat.imported import Imported
from broker.compat.notes import Note
from broker.compat.reading import import_text


def import_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A script or manifest; - is stdin.")],
    as_json: Json = False,
) -> int:
    """What an sbatch or qsub script, a Kubernetes manifest or a SkyPilot task means as a job.

    Shows the job, and by line what was understood, translated, ignored and why. Needs no broker;
    exits 2 when there is an error.
    """
    imported = import_text(Path(file).name, _content(file))
    if as_json:
        show_json(document(imported))
    else:
        _show(imported)
    return Exit.BAD_INPUT if imported.errors else Exit.OK


def document(imported: Imported) -> dict[str, Any]:
    """The answer as JSON: {kind, only, job, notes, errors, client}."""
    client = imported.client
    return {
        "kind": imported.kind.value,
        "only": imported.only or None,
        "job": imported.data,
        "notes": [_note(note) for note in imported.notes],
        "errors": [_note(note) for note in imported.errors],
        "client": {
            "output": client.output, "errors": client.errors, "append": client.append,
            "flags": sorted(client.flags), "inherit": list(client.inherit),
            "after": [{"job": a.job, "when": a.when, "line": a.line} for a in client.after],
        },
    }  # fmt: skip


def _note(note: Note) -> dict[str, Any]:
    return {"line": note.line, "level": note.level.value, "what": note.what, "text": note.text}


def _content(file: str) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read()
        return Path(file).read_bytes()
    except FileNotFoundError:
        raise Failure(Exit.BAD_INPUT, f"no file {file}") from None
    except OSError as error:
        raise Failure(Exit.BAD_INPUT, f"cannot read {file}: {error.strerror}") from None


def _show(imported: Imported) -> None:
    columns = (Column("line", right=True), Column("what became of it"), Column("directive"),
               Column("meaning here", fold=True))  # fmt: skip
    table = Table(columns, empty="nothing to tell")
    for note in sorted((*imported.errors, *imported.notes), key=lambda each: each.line):
        place = str(note.line) if note.line else "-"
        table.rows.append((place, note.level.value, note.what or "-", note.text))
    say(f"{imported.kind.value}\n")
    show(table)
    if imported.only:
        say(f"\nruns right on {imported.only} sites only")
    if imported.data is not None:
        import yaml

        say()
        text = yaml.safe_dump(dict(imported.data), sort_keys=False, allow_unicode=True, width=96)
        say(text, end="")
