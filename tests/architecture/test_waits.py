"""Where the programs may wait."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    path
    for part in ("broker", "regional_agent", "proto/federation")
    for path in (ROOT / part).rglob("*.py")
)
SOURCES = [path for path in PROGRAMS if "except*" in path.read_text(encoding="utf-8")]
TWIN = ROOT / "regional_agent/simulated.py"
"""It lives in virtual time alone, and is never told to stop in the middle of a wait."""
LOOPS = (ast.While, ast.AsyncFor)


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


def _waits_in_loops(source: str) -> list[int]:
    """Lines where a loop waits by `asyncio.wait_for`."""
    return [
        each.lineno
        for loop in ast.walk(ast.parse(source))
        if isinstance(loop, LOOPS)
        for each in ast.walk(loop)
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "asyncio.wait_for"
    ]


def test_no_loop_loses_a_cancellation() -> None:
    """`asyncio.wait_for` before Python 3.12 returns what came in the very step in which it was
    cancelled (cpython issue 86296), and the loop around it runs on for ever: a program that was
    told to end hangs. `async with asyncio.timeout` ends."""
    found = {
        str(path.relative_to(ROOT)): lines
        for path in PROGRAMS
        if path != TWIN and (lines := _waits_in_loops(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_such_a_loop_is_found() -> None:
    assert _waits_in_loops("while True:\n    await asyncio.wait_for(woken.wait(), 1)") == [2]
