"""Which files of a working directory patterns mean: `*`, `**`; a directory means all in it."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from regional_agent.act import unpack

MAX_OUTPUT_FILES = 10_000


def matching(work: Path, patterns: Collection[str]) -> dict[str, Path]:
    """By path relative to `work`, sorted; links, and what lies outside, are left out. Raises
    ValueError for a pattern that leads out, or for too many files."""
    found: dict[str, Path] = {}
    for pattern in patterns:
        unpack.check_relative(pattern)
        for match in work.glob(pattern):
            for file in _files_under(match):
                found[str(file.relative_to(work))] = file
    if len(found) > MAX_OUTPUT_FILES:
        raise ValueError(f"{len(found)} files match outputs; at most {MAX_OUTPUT_FILES}")
    inside = work.resolve()
    return {
        path: file
        for path, file in sorted(found.items())
        if file.resolve().is_relative_to(inside)
    }


def _files_under(path: Path) -> list[Path]:
    if path.is_symlink():
        return []
    if path.is_file():
        return [path]
    return [
        Path(top) / name
        for top, _, names in os.walk(path)
        for name in names
        if (Path(top) / name).is_file() and not (Path(top) / name).is_symlink()
    ]
