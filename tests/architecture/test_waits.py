"""Where the programs may wait."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for part in ("broker", "regional_agent", "proto/federation")
    for path in (ROOT / part).rglob("*.py")
    if "except*" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_waits_in_the_handler_of_a_group(path: Path) -> None:
    """Python before 3.11.4 wraps a cancellation that arrives there in a group (cpython issue
    103590): it is an error then, and no longer the end that was asked for."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    waits = [
        each.lineno
        for found in ast.walk(tree)
        if isinstance(found, ast.TryStar)
        for handler in found.handlers
        for each in ast.walk(handler)
        if isinstance(each, ast.Await | ast.AsyncFor | ast.AsyncWith)
    ]
    assert not waits, f"{path}: awaits inside except* in lines {waits}"


def test_there_is_something_to_look_at() -> None:
    assert SOURCES
