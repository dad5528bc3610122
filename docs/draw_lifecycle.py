"""Redraw the lifecycle diagram of the architecture page from its table."""

from __future__ import annotations

from pathlib import Path

from broker.lifecycle.diagram import with_diagram

PAGE = Path(__file__).with_name("architecture.md")

if __name__ == "__main__":
    PAGE.write_text(with_diagram(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
