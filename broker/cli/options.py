"""Options that many commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON (times in UTC).")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or its name.")]
JobNames = Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids or names of jobs.")]


def group(help_text: str) -> typer.Typer:
    """An application of sub-commands, plain as the rest."""
    return typer.Typer(
        help=help_text,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
