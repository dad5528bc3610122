"""The matrix of the documentation, from recorded runs of the suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"
SHOWN = {"passed": "yes", "failed": "**no**", "not tried": "-"}


def matrix(runs: Sequence[Mapping[str, Any]]) -> str:
    """A table: a line per case, a column per scheduler."""
    kinds = [run["scheduler"] for run in runs]
    said: dict[str, str] = {}
    results: dict[tuple[str, str], str] = {}
    for run in runs:
        for case in run["cases"]:
            said[case["case"]] = case["says"]
            results[case["case"], run["scheduler"]] = SHOWN[case["result"]]
    lines = ["| what holds | " + " | ".join(kinds) + " |", "|---|" + "---|" * len(kinds)]
    for name, says in said.items():
        cells = " | ".join(results.get((name, kind), "-") for kind in kinds)
        lines.append(f"| {says} (`{name}`) | {cells} |")
    return "\n".join(lines)


def with_matrix(page: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """The page with the matrix between its marks. Raises ValueError where there are none."""
    head, mark, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n{matrix(runs)}\n{END}{tail}"
