"""Small federations for tests of one behaviour: fleet, jobs and faults in, a result out."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.control.policy_text import read_policy
from broker.simulator.run import Result, prepare, run
from broker.simulator.scenario import scenario_from


def pool(cluster: str, **changes: Any) -> dict[str, Any]:
    """Two nodes of eight H100 at 2 USD."""
    usual = {
        "name": "h100",
        "cluster": cluster,
        "accelerator": "H100",
        "accelerators_per_node": 8,
        "free_nodes": {8: 2},
        "price_usd_per_accelerator_hour": 2,
    }
    return usual | changes


NEAR = pool("near", price_usd_per_accelerator_hour=1)
FAR = pool("far", price_usd_per_accelerator_hour=3)


def job(name: str, at: float, duration: float, **rest: Any) -> dict[str, Any]:
    """A job of so many H100 (`cards`, 1 unless said); `on`: the cluster it has to run on."""
    cards, on = rest.pop("cards", 1), rest.pop("on", None)
    spec = dict(rest.pop("spec", {}))
    spec.setdefault("resources", {"accelerators": f"H100:{cards}"})
    if on:
        spec["placement"] = {**spec.get("placement", {}), "clusters": [on]}
    return {"name": name, "at": at, "duration": duration, "spec": spec, **rest}


def fault(
    kind: str, at: float | str, lasts: float, target: str = "", **rest: Any
) -> dict[str, Any]:
    """A fault that begins at `at` and lasts so many seconds."""
    return {"kind": kind, "at": at, "for": lasts, "target": target, **rest}


def simulate(
    jobs: Sequence[dict[str, Any]],
    faults: Sequence[dict[str, Any]] = (),
    pools: Sequence[dict[str, Any]] = (NEAR, FAR),
    **rest: Any,
) -> Result:
    """Run it; every test wants no violation, so that is looked at here. `policy`: the text of a
    routing policy that all jobs run under."""
    source = rest.pop("policy", "")
    names = list(dict.fromkeys(each["cluster"] for each in pools))
    clusters = [{"name": name, "region": name} for name in names]
    body = {
        "fleet": {"clusters": clusters, "pools": list(pools)},
        "workload": {"jobs": list(jobs)},
        "faults": list(faults),
        "settle": 3600,
        **rest,
    }
    here = Path.cwd()
    result = _governed(body, source) if source else run(prepare(scenario_from(body), here))
    assert not result.violations
    return result


def _governed(body: dict[str, Any], source: str) -> Result:
    name = read_policy(source).name
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "policy.yaml"
        file.write_text(source)
        body = {**body, "policies": [name], "policy_files": [file.name]}
        return run(prepare(scenario_from(body), Path(directory)), policy=name)


def moments(result: Result, *words: str) -> list[float]:
    """When (virtual s) lines with all these words were written."""
    found = (line.split(" ", 1) for line in result.transcript)
    return [float(at) for at, text in found if all(word in text for word in words)]
