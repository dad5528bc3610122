"""Random scenarios from seeds: a fleet, jobs of every kind, and whatever may go wrong.

Run as a module it sweeps seeds; a failing one prints the command that replays it:

    python -m tests.simulation.histories --seeds 100
    python -m tests.simulation.histories --seed 17
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from broker.simulator.run import Result, prepare, run
from broker.simulator.scenario import FAULTS, scenario_from
from federation.virtual_time import SimRng

MODELS = ("H100", "A100-80GB", "CPU")
BROKEN_PROMISES = {"unfenced"}
"""What a site may not do, and what a checker is right to complain of."""
RULES = ("keep_original", "keep_replacement", "longest_running")


def pick(rng: SimRng, choices: Any) -> Any:
    """One of several."""
    return choices[rng.below(len(choices))]


def history(seed: int) -> dict[str, Any]:
    """A whole scenario from one number."""
    rng = SimRng(f"history/{seed}")
    clusters = [
        {"name": f"c{n}", "region": f"r{n % 2}", "start": round(rng.uniform(0.1, 5), 1)}
        for n in range(1 + rng.below(4))
    ]
    pools = [_pool(rng, each["name"], n) for each in clusters for n in range(1 + rng.below(2))]
    jobs = [_job(rng, n, pools) for n in range(4 + rng.below(14))]
    faults = [_fault(rng, clusters) for _ in range(rng.below(6))]
    if any("on_disconnect" in job["spec"] for job in jobs) and rng.below(3):
        faults.append(_long_silence(rng, clusters))
    return {
        "version": 1,
        "fleet": {"clusters": clusters, "pools": pools},
        "workload": {"jobs": jobs},
        "faults": faults,
        "brokers": 1 + (rng.below(4) == 0),
        "seed": seed,
        "settle": "30m",
    }


def _pool(rng: SimRng, cluster: str, number: int) -> dict[str, Any]:
    model = pick(rng, MODELS) if number else pick(rng, ("CPU", "H100"))
    size = pick(rng, (4, 8)) if model != "CPU" else 16
    return {
        "name": f"p{number}",
        "cluster": cluster,
        "accelerator": model,
        "accelerators_per_node": size,
        "free_nodes": {size: 1 + rng.below(3)},
        "price_usd_per_accelerator_hour": round(rng.uniform(0.05, 4), 2),
    }


def _job(rng: SimRng, number: int, pools: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    model = pick(rng, pools)["accelerator"]
    if model != "CPU":
        spec["resources"] = {"accelerators": f"{model}:{pick(rng, (1, 2, 4))}"}
        if rng.below(4) == 0:
            spec["resources"]["replicas"] = 2
    if rng.below(4) == 0:
        last = 1 + rng.below(30)
        spec["array"] = f"0-{last}" + (f"%{1 + rng.below(6)}" if rng.below(2) else "")
    if rng.below(3) == 0:
        spec["retry"] = {"attempts": 2 + rng.below(2), "on": ["failed", "lost"]}
    if rng.below(6) == 0:
        spec["placement"] = {"max_start_delay": "30s"}
    if rng.below(5) == 0:
        spec["max_runtime"] = f"{5 + rng.below(60)}s"
        spec["expected_runtime"] = "5s"
    if rng.below(4) == 0:
        rule = pick(rng, RULES)
        spec["on_disconnect"] = {"replace": True, "lost_after": "60s", "reconcile": rule}
        spec["preempt_grace"] = f"{1 + rng.below(20)}s"
    at_s = round(rng.uniform(0, 120), 3)
    job: dict[str, Any] = {
        "name": f"j{number}",
        "at": at_s,
        "duration": round(rng.uniform(0.2, 300 if "on_disconnect" in spec else 90), 1),
        "count": 1 + rng.below(3),
        "exit": pick(rng, (0, 0, 0, 0, 3)),
        "spec": spec,
    }
    if rng.below(4) == 0:
        job["cancel"] = round(at_s + rng.uniform(0, 90), 3)
    if rng.below(6) == 0:
        job["hold"] = round(at_s + rng.uniform(0, 5), 3)
        job["release"] = round(job["hold"] + rng.uniform(1, 60), 3)
    return job


def _fault(rng: SimRng, clusters: list[dict[str, Any]]) -> dict[str, Any]:
    kind = pick(rng, sorted(FAULTS.keys() - BROKEN_PROMISES))
    fault: dict[str, Any] = {
        "at": round(rng.uniform(0, 150), 3),
        "kind": kind,
        "for": round(rng.uniform(0, 60), 1),
        "share": round(rng.uniform(0.1, 1), 2),
    }
    if kind.startswith("broker"):
        fault["target"] = "broker-1"
        if kind == "broker_crash" and rng.below(2):
            point = pick(rng, ("commit", "committed", "send", "sent"))
            fault["at"] = f"{point}:{1 + rng.below(80)}"
    elif not kind.startswith("store"):
        fault["target"] = pick(rng, clusters)[pick(rng, ("name", "region"))]
    return fault


def _long_silence(rng: SimRng, clusters: list[dict[str, Any]]) -> dict[str, Any]:
    """Long enough for contact deadlines to pass, or just not."""
    return {
        "at": round(rng.uniform(5, 120), 3),
        "kind": pick(rng, ("partition", "partition", "agent_crash", "flap")),
        "for": round(rng.uniform(50, 240), 1),
        "every": round(rng.uniform(0.3, 30), 1),
        "target": pick(rng, clusters)["name"],
    }


def play(seed: int) -> Result:
    """Run the history of a seed."""
    return run(prepare(scenario_from(history(seed)), Path.cwd()))


def trouble(seed: int) -> str:
    """What is wrong with the history of a seed; empty for nothing."""
    try:
        violations = play(seed).violations
    except Exception as fault:  # noqa: BLE001  a crash of the run is a finding like any other
        return f"{type(fault).__name__}: {fault}"
    more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
    return violations[0] + more if violations else ""


def replay(seed: int) -> str:
    """The one command that shows it again."""
    return f"{sys.executable} -m tests.simulation.histories --seed {seed}"


def main() -> int:
    """Sweep, or replay one."""
    parser = argparse.ArgumentParser(description="Random histories in virtual time")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int, help="replay this one, with its transcript")
    given = parser.parse_args()
    if given.seed is not None:
        print(yaml.safe_dump(history(given.seed), sort_keys=False))
        result = play(given.seed)
        print("\n".join(result.transcript))
        print("\n".join(result.violations) or "no violation")
        return 1 if result.violations else 0
    failed = []
    began_s = time.monotonic()
    for seed in range(given.first, given.first + given.seeds):
        problem = trouble(seed)
        if problem:
            failed.append(seed)
            print(f"seed {seed}: {problem}\n  replay: {replay(seed)}", flush=True)
    took_s = time.monotonic() - began_s
    print(f"{given.seeds} histories in {took_s:.0f} s, {len(failed)} with violations")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
