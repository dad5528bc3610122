"""Every scenario file: no checker finds a fault, expectations hold, and the golden still tells the
same story. TRADEWIND_REWRITE_GOLDENS=1 writes the goldens anew.

A golden is what happened to each job (exactly) and the figures (nearly: they move with every
millisecond of the product). Whole transcripts are compared run against run in test_determinism.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from broker.simulator.report import unmet
from broker.simulator.run import Result, prepare, run
from broker.simulator.scenario import read_scenario

HERE = Path(__file__).parent
FILES = sorted((HERE / "scenarios").glob("*.yaml"))
GOLDENS = HERE / "goldens"
REWRITE = "TRADEWIND_REWRITE_GOLDENS"
NOT_KEPT = ("decisions", "decision_s_mean")
NEAR = {"rel": 0.05, "abs": 2.0}


def golden_of(result: Result) -> dict[str, object]:
    metrics = {k: round(v, 2) for k, v in result.metrics.items() if k not in NOT_KEPT}
    return {"metrics": metrics, "story": result.story}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    scenario = read_scenario(file)
    result = run(prepare(scenario, file.parent))
    assert not result.violations
    assert not unmet(scenario, result.metrics)
    golden_file = GOLDENS / f"{file.stem}.json"
    if os.environ.get(REWRITE):
        golden_file.write_text(json.dumps(golden_of(result), indent=1) + "\n")
    golden = json.loads(golden_file.read_text())
    hint = f"if this is meant, rewrite it: {REWRITE}=1 pytest {Path(__file__).name}"
    assert result.story == golden["story"], hint
    found = {name: result.metrics[name] for name in golden["metrics"]}
    assert found == pytest.approx(golden["metrics"], **NEAR), hint


def test_goldens_belong_to_scenarios() -> None:
    assert {f.stem for f in GOLDENS.glob("*.json")} == {f.stem for f in FILES}
