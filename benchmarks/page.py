"""Write the measured tables of docs/benchmarks.md anew.

    python benchmarks/page.py                      measure submit, dispatch and restart, then write
    python benchmarks/page.py submit.json ...      take what `tradewind bench submit --json` printed

Only what stands between the marks of a bench is replaced; the words around it are people's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from broker.local.bench.machine import told

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
BENCHES = ("submit", "dispatch", "restart")
HEAD = "| figure | min | median | max | unit | floor | ratio | target | met |\n"
RULE = "|---|---|---|---|---|---|---|---|---|\n"


def table(result: dict[str, Any]) -> str:
    """What was measured, as Markdown."""
    runs = max(figure["runs"] for figure in result["figures"])
    rows = "".join(_row(figure) for figure in result["figures"])
    return f"{runs} runs; {told(result['machine'])}.\n\n{HEAD}{RULE}{rows}"


def _row(figure: dict[str, Any]) -> str:
    floor, ratio = figure.get("floor"), figure.get("ratio_to_floor")
    cells = [
        figure["name"],
        *(_number(figure[name]) for name in ("min", "median", "max")),
        figure["unit"],
        f"{floor['name']}: {_number(floor['median'])}" if floor else "",
        f"{ratio['median']:.2f}" if ratio else "",
        figure.get("target", ""),
        {True: "yes", False: "**no**", None: ""}[figure.get("met")],
    ]
    return "| " + " | ".join(cells) + " |\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def written(page: str, result: dict[str, Any]) -> str:
    """The page with the table of one bench. Raises ValueError where it has no marks for it."""
    name = result["bench"]
    begin, end = f"<!-- {name}: measured -->\n", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"{PAGE.name} has no place for {name}")
    return pattern.sub(lambda _: f"{begin}{table(result)}{end}", page)


def _measured(name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "broker", "bench", name, "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
    return found


def main(files: list[str]) -> None:
    """Measure, or read, and write."""
    results = [json.loads(Path(file).read_text(encoding="utf-8")) for file in files]
    for result in results or map(_measured, BENCHES):
        page = written(PAGE.read_text(encoding="utf-8"), result)
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
