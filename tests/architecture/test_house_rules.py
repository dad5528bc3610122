"""The rules of the house that no linter holds: lengths, names, docstrings, patches."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from sources import PRODUCT, ROOT, functions, public_functions, sources  # noqa: E402

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 400
BANNED_MODULES = {"utils", "util", "helpers", "common", "manager", "base", "misc"}


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{source.path}:{node.lineno} {node.name}: {lines}"
        for source in sources(*PRODUCT)
        for node in functions(source.tree)
        if (lines := (node.end_lineno or 0) - _first_line(source.path, node) + 1)
        > FUNCTION_LINES_MAX
    ]
    assert not long, f"over {FUNCTION_LINES_MAX} lines: " + "; ".join(long)


def _first_line(path: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Where it starts; for a command of the command line, after the list of its options."""
    is_command = path.startswith("broker/cli/commands/")
    return node.body[0].lineno if is_command else node.lineno


def test_no_module_is_longer_than_can_be_held_in_mind() -> None:
    long = [f"{s.path}: {s.lines}" for s in sources(*PRODUCT) if s.lines > MODULE_LINES_MAX]
    assert not long, f"over {MODULE_LINES_MAX} lines: " + "; ".join(long)


def test_no_module_has_a_name_that_attracts_everything() -> None:
    named = [
        source.path
        for source in sources(*PRODUCT)
        if BANNED_MODULES & set(Path(source.path).with_suffix("").parts)
    ]
    assert not named, f"say what is in it: {named}"


def test_nothing_is_global() -> None:
    found = [
        f"{source.path}:{node.lineno}"
        for source in sources(*PRODUCT)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Global)
    ]
    assert not found, f"pass it in instead: {found}"


def test_tests_patch_nothing() -> None:
    """A seam that a test has to cut open is one that the product lacks."""
    found = [
        f"{source.path}:{node.lineno}"
        for source in sources("tests")
        for node in ast.walk(source.tree)
        if (isinstance(node, ast.Name) and node.id == "patch")
        or (isinstance(node, ast.ImportFrom) and node.module == "unittest.mock")
        or (isinstance(node, ast.Import) and any(a.name == "unittest.mock" for a in node.names))
    ]
    assert not found, f"give the product a parameter instead: {found}"


def test_what_others_may_call_says_what_it_does() -> None:
    silent = [
        f"{source.path}:{node.lineno} {name}"
        for source in sources(*PRODUCT)
        for name, node in public_functions(source.tree)
        if not node.name.startswith("_")
        and ast.get_docstring(node) is None
        and not _documented_elsewhere(node)
    ]
    assert not silent, "no docstring: " + "; ".join(silent)


def _documented_elsewhere(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Marked as an override, an overload, or a setter: another place has the docstring."""
    marks = {ast.unparse(mark).rsplit(".", 1)[-1] for mark in node.decorator_list}
    return bool(marks & {"override", "overload", "setter"})


def test_every_package_says_what_it_is() -> None:
    silent = [
        source.path
        for source in sources(*PRODUCT)
        if source.path.endswith("__init__.py") and ast.get_docstring(source.tree) is None
    ]
    assert not silent, f"no docstring: {silent}"


def test_only_the_edges_catch_everything() -> None:
    """`except Exception` is for a supervisor and the outermost boundary, and says why it is."""
    found = []
    for source in sources(*PRODUCT):
        text = (ROOT / source.path).read_text(encoding="utf-8").splitlines()
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ExceptHandler) and _blind(node):
                line = text[node.lineno - 1]
                if "noqa: BLE001" not in line and not _raises(node):
                    found.append(f"{source.path}:{node.lineno}")
    assert not found, f"name what may happen: {found}"


def _blind(node: ast.ExceptHandler) -> bool:
    return node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")


def _raises(node: ast.ExceptHandler) -> bool:
    return any(isinstance(each, ast.Raise) for each in ast.walk(node))
