"""What the demonstration submits: real programs on made-up cards. Pure.

The first batch is made so that one decision over all of it beats one job after the other: `embed`
would like the cheap L40S, `render` can run nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

ARRAY_TASKS, ARRAY_WIDTH = 200, 32
PROGRAM = "work.py"
HOME_LABEL = "home"
IMPOSSIBLE, URGENT, GANG, ARRAY, SHOWN = "too-big", "urgent", "train", "sweep", "embed-1"
_TASK = (
    'echo "$TRADEWIND_ATTEMPT $TRADEWIND_TASK $TRADEWIND_RANK" >> "$STARTS"\n'
    "seq $TRADEWIND_TASK $((TRADEWIND_TASK + 2000)) | cksum\n"
    "sleep 0.8\n"
)


@dataclass(frozen=True, slots=True)
class Planned:
    """A job of the demonstration. `starts`: how many processes it starts if it runs once."""

    spec: dict[str, Any]
    starts: int
    late: bool = False
    runs: bool = True

    @property
    def name(self) -> str:
        """The job's name, unique here."""
        return str(self.spec["name"])


def workload(python: str, starts_file: str) -> tuple[Planned, ...]:
    """Everything, in the order of submission. Files are named relative to the programs."""
    us, eu, ap = _home("us-east"), _home("eu-west"), _home("ap-southeast")
    cheap: dict[str, Any] = {"placement": {"spot": True}}
    here: dict[str, Any] = {"placement": {"regions": ["eu-west"]}}
    either = _cards(["L40S:4", "A100-80GB:4"])
    make = _Maker(python, starts_file)
    return (
        make.program(GANG, "reduce", 14, us, _cards("H100:4", 2), {"priority": 300}),
        make.program("tune-1", "pi", 8, us, _cards("H100:8")),
        make.program("tune-2", "primes", 4, us, _cards("H100:8")),
        *(make.program(f"embed-{n}", "digest", 6, eu, either, cheap) for n in range(1, 5)),
        make.program("render", "primes", 6, eu, _cards("L40S:4", 2), cheap),
        make.program("residents", "digest", 5, eu, _cards("A100-80GB:8"), here),
        *(make.program(f"count-{n}", "primes", 5, ap, _slots(2)) for n in range(1, 4)),
        make.array(us),
        replace(make.program(IMPOSSIBLE, "pi", 5, us, _cards("H100:16")), starts=0, runs=False),
        replace(
            make.program(URGENT, "pi", 3, us, _cards("H100:8"), {"priority": 900}), late=True
        ),
    )


@dataclass(frozen=True, slots=True)
class _Maker:
    python: str
    starts_file: str

    def program(self, name: str, what: str, seconds: int, *parts: dict[str, Any]) -> Planned:
        spec: dict[str, Any] = {
            "name": name,
            "command": [self.python, "-S", "-E", PROGRAM, what, str(seconds)],
            "files": {PROGRAM: PROGRAM},
            "env": {"STARTS": self.starts_file},
            "expected_runtime": f"{seconds}s",
            "max_runtime": "10m",
            "outputs": ["result.txt"],
        }
        for part in parts:
            spec |= part
        return Planned(spec, spec["resources"].get("replicas", 1))

    def array(self, *parts: dict[str, Any]) -> Planned:
        spec: dict[str, Any] = {
            "name": ARRAY,
            "run": _TASK,
            "array": f"0-{ARRAY_TASKS - 1}%{ARRAY_WIDTH}",
            "env": {"STARTS": self.starts_file},
            "resources": {"cpus": 1, "memory": "16MiB"},
            "expected_runtime": "1s",
            "max_runtime": "10m",
        }
        for part in parts:
            spec |= part
        return Planned(spec, ARRAY_TASKS)


def _home(region: str) -> dict[str, Any]:
    return {"labels": {HOME_LABEL: region}}


def _cards(what: str | list[str], replicas: int = 1) -> dict[str, Any]:
    shape: dict[str, Any] = {"accelerators": what, "cpus": 1, "memory": "64MiB"}
    return {"resources": shape | ({"replicas": replicas} if replicas > 1 else {})}


def _slots(cpus: int) -> dict[str, Any]:
    return {"resources": {"cpus": cpus, "memory": "64MiB"}}
