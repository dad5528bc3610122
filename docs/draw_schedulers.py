"""Redraw the matrix of the page on schedulers from docs/conformance/*.json.

Those are written by `python -m tests.conformance.schedulers.record KIND...`.
"""

from __future__ import annotations

import json
from pathlib import Path

from regional_agent.conformance.matrix import with_matrix

PAGE = Path(__file__).with_name("schedulers.md")
RUNS = Path(__file__).with_name("conformance")


def recorded() -> list[dict[str, object]]:
    """The recorded runs by name of the scheduler."""
    return [json.loads(path.read_bytes()) for path in sorted(RUNS.glob("*.json"))]


if __name__ == "__main__":
    PAGE.write_text(with_matrix(PAGE.read_text(encoding="utf-8"), recorded()), encoding="utf-8")
