"""What the demonstration submits: real programs on made-up cards. Pure.

The first batch is made so that one decision over all of it beats one job after the other: `embed`
would like the cheap L40S, `render` can run nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
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

    def program(name: str, what: str, seconds: float, **more: Any) -> dict[str, Any]:
        return {
            "name": name,
            "command": [python, "-S", "-E", PROGRAM, what, f"{seconds:g}"],
            "files": {PROGRAM: PROGRAM},
            "env": {"STARTS": starts_file},
            "expected_runtime": f"{max(round(seconds), 1)}s",
            "max_runtime": "10m",
            "outputs": ["result.txt"],
            **more,
        }

    def cards(what: str | list[str], replicas: int = 1) -> dict[str, Any]:
        shape: dict[str, Any] = {"accelerators": what, "cpus": 1, "memory": "64MiB"}
        return {"resources": shape | ({"replicas": replicas} if replicas > 1 else {})}

    cheap: dict[str, Any] = {"placement": {"spot": True}}
    either = ["L40S:4", "A100-80GB:4"]
    array = {
        "name": ARRAY,
        "run": _TASK,
        "array": f"0-{ARRAY_TASKS - 1}%{ARRAY_WIDTH}",
        "env": {"STARTS": starts_file},
        "resources": {"cpus": 1, "memory": "16MiB"},
        "expected_runtime": "1s",
        "max_runtime": "10m",
    }
    first = [
        Planned(
            program(GANG, "reduce", 14, **cards("H100:4", 2), **_home("us-east"), priority=300), 2
        ),
        Planned(program("tune-1", "pi", 8, **cards("H100:8"), **_home("us-east")), 1),
        Planned(program("tune-2", "primes", 4, **cards("H100:8"), **_home("us-east")), 1),
        *(
            Planned(
                program(f"embed-{n}", "digest", 6, **cards(either), **cheap, **_home("eu-west")), 1
            )
            for n in range(1, 5)
        ),
        Planned(
            program("render", "primes", 6, **cards("L40S:4", 2), **cheap, **_home("eu-west")), 2
        ),
        Planned(
            program(
                "residents", "digest", 5, **cards("A100-80GB:8"), **_home("eu-west"),
                placement={"regions": ["eu-west"]},
            ),
            1,
        ),
        *(
            Planned(program(f"count-{n}", "primes", 5, **_slots(2), **_home("ap-southeast")), 1)
            for n in range(1, 4)
        ),
        Planned(array | _home("us-east"), ARRAY_TASKS),
        Planned(
            program(IMPOSSIBLE, "pi", 5, **cards("H100:16"), **_home("us-east")), 0, runs=False
        ),
    ]
    urgent = program(URGENT, "pi", 3, **cards("H100:8"), **_home("us-east"), priority=900)
    return (*first, Planned(urgent, 1, late=True))


def _home(region: str) -> dict[str, Any]:
    return {"labels": {HOME_LABEL: region}}


def _slots(cpus: int) -> dict[str, Any]:
    return {"resources": {"cpus": cpus, "memory": "64MiB"}}
