"""The lifecycle diagram in the architecture page is the table's own."""

from __future__ import annotations

from pathlib import Path

from broker.lifecycle.diagram import attempt_diagram, with_diagram

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_diagram(text) == text, "run: python docs/draw_lifecycle.py"


def test_an_attempt_never_goes_back() -> None:
    assert "ended --> placed" not in attempt_diagram()
    assert "running --> starting" not in attempt_diagram()
