"""Printing an explanation, of a job or of a dry run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cli import candidates
from broker.cli.formatting import NONE, Now, text
from broker.cli.output import say, show


def show_explanation(explanation: Mapping[str, Any], now: Now, *, briefly: bool = False) -> None:
    """The summary, the candidate table, and (unless `briefly`) all the rest that is known."""
    summary = text(explanation.get("summary"))
    if summary != NONE:
        say(summary)
        say()
    show(candidates.candidate_table(explanation))
    waiting = candidates.waiting_table(explanation)
    if waiting.rows and not briefly:
        say()
        show(waiting)
    lines = candidates.explanation_lines(explanation, now)
    if not briefly:
        lines += candidates.price_notes(explanation, now)
    if lines:
        say()
    for line in lines:
        say(line)
