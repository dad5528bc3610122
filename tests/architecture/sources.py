"""The tree as the tests of its shape read it: files, parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("broker", "regional_agent", "proto")


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: str
    lines: int
    tree: ast.Module


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Every Python file below these folders that a person wrote, in a fixed order."""
    return tuple(_read(path) for folder in folders for path in _files(ROOT / folder))


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.py")):
        if not path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
            yield path


def _read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    return Source(name, len(text.splitlines()), ast.parse(text, filename=name))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function in a tree, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def public_functions(
    tree: ast.Module,
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions of the module and methods of its public classes that others may call."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            if any("Protocol" in ast.unparse(base) for base in node.bases):
                continue
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{each.name}", each
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
