"""`tradewind-agent conformance` on a site of one's own, as its settings name it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.schedulers.gridengine_cluster import GridEngine
from tests.schedulers.kubernetes_server import NAMESPACE, TOKEN, ServerThread
from tests.schedulers.slurm_cluster import SlurmSite

PROGRAM = str(Path(sys.executable).parent / "tradewind-agent")
SOME = ("succeeds", "cancel_running", "array")
INVENTORY = (
    "inventory:\n"
    "  - {name: cpu, accelerator: CPU, accelerators_per_node: 64, cpus: 64, memory: 64GiB}\n"
)


def try_some(state: Path, settings: str, before: tuple[str, ...], env: dict[str, str]) -> None:
    state.mkdir(mode=0o700, parents=True)
    (state / "agent.yaml").write_text(settings)
    done = subprocess.run(
        [*before, PROGRAM, "conformance", *SOME, "--json", "--state-dir", str(state)],
        capture_output=True, text=True, timeout=200, check=False, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert {case["case"]: case["result"] for case in cases} == dict.fromkeys(SOME, "passed")
    assert [path.name for path in state.iterdir()] == ["agent.yaml"]


def test_of_slurm(slurm_site: SlurmSite) -> None:
    cluster = slurm_site.clusters["alpha"]
    settings = f"scheduler: slurm\nslurm: {{conf: {cluster.conf}, partitions: [main]}}\n"
    try_some(slurm_site.scratch / "own", settings, (), cluster.env)


def test_of_grid_engine(gridengine_cell: GridEngine) -> None:
    settings = "scheduler: gridengine\n"
    cell = gridengine_cell
    try_some(cell.scratch / "own", settings, cell.inside, cell.env)


def test_of_kubernetes(tmp_path: Path) -> None:
    thread = ServerThread()
    thread.start()
    try:
        (tmp_path / "token").write_text(TOKEN)
        settings = (
            f"scheduler: kubernetes\nkubernetes: {{url: '{thread.server.url}', image: jobs:1, "
            f"namespace: {NAMESPACE}, token_file: {tmp_path}/token, host_path: {tmp_path}}}\n"
        )
        try_some(tmp_path / "own", settings, (), {"PATH": "/usr/bin:/bin"})
    finally:
        thread.stop()
    assert not thread.server.refused


def test_a_case_nobody_knows_is_named(tmp_path: Path) -> None:
    argv = [PROGRAM, "conformance", "nonsense", "--state-dir", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "no case nonsense; there are" in done.stderr


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("scheduler: slum\n", "scheduler"),
        ("slurm: {}\n", "goes with scheduler: slurm"),
        (f"scheduler: slurm\n{INVENTORY}", "the site itself tells what it has"),
        ("scheduler: slurm\nslurm: {partition: x}\n", "did you mean partitions?"),
        ("scheduler: slurm\nslurm: {poll: 1h}\n", "slurm.poll"),
        ("scheduler: slurm\nslurm: {gres: {a100: A1000}}\n", "slurm.gres.a100"),
        (f"scheduler: gridengine\n{INVENTORY}", "the site itself tells what it has"),
        (
            "scheduler: gridengine\ngridengine: {parallel_environment: smp}\n",
            "did you mean parallel_environments?",
        ),
    ],
)
def test_settings_that_make_no_sense_are_named(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "agent.yaml").write_text(text)
    argv = [PROGRAM, "conformance", "succeeds", "--state-dir", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and fault in done.stderr, done.stderr


def test_where_files_are_carried_it_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(
        "scheduler: kubernetes\nkubernetes: {url: 'https://a', namespace: n, image: i, "
        "carry: {image: t}}\n"
    )
    done = subprocess.run(
        [PROGRAM, "conformance", "--state-dir", str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode and "volume_claim or host_path" in done.stderr
