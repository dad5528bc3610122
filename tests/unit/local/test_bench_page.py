"""The tables of docs/benchmarks.md are what was measured, and nothing else of it is touched."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from broker.local.bench.figures import Figure, Target
from broker.local.bench.machine import GIB, Machine, this_machine, told

ROOT = Path(__file__).resolve().parents[3]
page_writer = runpy.run_path(str(ROOT / "benchmarks" / "page.py"))
PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
QUIET = Machine("a cpu", 2, 7.8, "Linux 6", "3.11.7", "2026-01-31T08:00:00Z", 0.2)


def result(bench: str, machine: Machine = QUIET) -> dict[str, Any]:
    figure = Figure("jobs taken on", "jobs/s", Target(0.6, of_floor=True), "puts/s")
    for value in (50.0, 200.0, 1_234.0):
        figure.add(value, 400.0)
    document = {
        "bench": bench, "machine": machine.document(), "figures": [figure.document()],
    }  # fmt: skip
    found: dict[str, Any] = json.loads(json.dumps(document))
    return found


@pytest.mark.parametrize("bench", ["submit", "dispatch", "restart"])
def test_the_page_has_a_place_for_each_bench_and_only_that_changes(bench: str) -> None:
    written = page_writer["written"](PAGE, result(bench))
    before, _, rest = PAGE.partition(f"<!-- {bench}: measured -->\n")
    after = rest.partition(f"<!-- end of {bench} -->")[2]
    assert written.startswith(before) and written.endswith(after)
    assert page_writer["written"](written, result(bench)) == written


def test_a_row_says_value_floor_ratio_target_and_whether_it_is_met() -> None:
    table = page_writer["table"](result("submit"))
    cells = [cell.strip() for cell in table.splitlines()[-1].strip("|").split("|")]
    assert cells == [
        "jobs taken on", "50", "200", "1,234", "jobs/s", "puts/s: 400", "0.50",
        ">= 60% of the floor",
        "**no**",
    ]  # fmt: skip
    assert table.startswith("3 runs; a cpu, 2 cores, 7.8 GiB, Linux 6, Python 3.11.7; 2026-01-31")


def test_a_bench_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for nothing"):
        page_writer["written"](PAGE, result("nothing"))


def test_a_busy_machine_is_named() -> None:
    busy = Machine("a cpu", 2, 7.8, "Linux 6", "3.11.7", "2026-01-31T08:00:00Z", 0.7)
    assert busy.busy and not QUIET.busy
    assert "other work was going on" in told(busy.document())
    assert "other work" not in told(QUIET.document())


def test_this_machine_is_known() -> None:
    here = this_machine(1_800_000_000_000)
    assert here.cores >= 1 and here.memory_gib * GIB > 2**28 and here.began_at.startswith("2027")
