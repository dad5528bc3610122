"""Samples of every directive, each with what it must mean: goldens a person can read.

After a change that is meant: TRADEWIND_UPDATE_GOLDENS=1 pytest tests/unit/compat/test_samples.py,
then read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.compat.imported import Imported
from broker.compat.reading import import_text
from broker.compat.sge_options import OPTIONS as SGE_OPTIONS
from broker.compat.slurm_options import OPTIONS as SLURM_OPTIONS

HERE = Path(__file__).parent
SAMPLES = sorted(path for path in (HERE / "samples").rglob("*") if path.is_file())
KEPT = (
    "export SLURM", "export SGE_TASK", "export PE=", "export NSLOTS", "export SKYPILOT_NUM",
    "exec ", "cd ", '[ -n "$tw_slurm" ]',
)  # fmt: skip
UPDATE = os.environ.get("TRADEWIND_UPDATE_GOLDENS") == "1"


def name_of(path: Path) -> str:
    """`sbatch/heredoc.sbatch`."""
    return f"{path.parent.name}/{path.name}"


def shown(imported: Imported) -> str:
    """What was made of a file, as text: notes, then the job with its script cut to what matters."""
    lines = [f"kind: {imported.kind}", f"only: {imported.only or 'anywhere'}"]
    told = sorted((*imported.errors, *imported.notes), key=lambda note: note.line)
    lines += [f"{note.line:>3} {note.level:<10} {note.what} | {note.text}" for note in told]
    client = imported.client
    lines.append(
        f"client: output={client.output!r} errors={client.errors!r} append={client.append}"
        f" flags={sorted(client.flags)} inherit={list(client.inherit)}"
        f" directory={client.directory!r}"
    )
    data: dict[str, Any] = dict(imported.data or {})
    wanted = data.get("resources", {}).get("accelerators")
    if isinstance(wanted, list) and len(wanted) > 8:
        several = f"{wanted[0]}, {wanted[1]}, ... {wanted[-1]} ({len(wanted)} in all)"
        data["resources"] = {**data["resources"], "accelerators": several}
    if "run" in data:
        data["run"] = essence(data["run"])
    lines.append(yaml.safe_dump(data, sort_keys=False, width=96) if data else "no job")
    return "\n".join(lines).rstrip() + "\n"


def essence(run: str) -> list[str]:
    """The lines of a wrapper that differ from script to script."""
    kept, inside = [], ""
    for line in run.split("\n"):
        if inside:
            inside = "" if line == inside else inside
        elif line.startswith("cat > ") and "<<'" in line:
            kept.append(line.split(" <<")[0])
            inside = line.split("<<'")[1].split("'")[0]
        elif line.startswith(KEPT):
            kept.append(line)
    return kept


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_sample_means_what_it_did(sample: Path) -> None:
    text = shown(import_text(sample.name, sample.read_bytes()))
    golden = HERE / "goldens" / sample.parent.name / f"{sample.name}.txt"
    if UPDATE:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_there_are_enough_and_none_is_left_over() -> None:
    assert len(SAMPLES) >= 100
    goldens = {
        f"{path.parent.name}/{path.name.removesuffix('.txt')}"
        for path in (HERE / "goldens").rglob("*.txt")
    }
    assert goldens == {f"{path.parent.name}/{path.name}" for path in SAMPLES}


def test_every_option_of_sbatch_has_a_sample() -> None:
    texts = "\n".join(path.read_text() for path in SAMPLES if path.suffix == ".sbatch")
    missing = [o.long for o in SLURM_OPTIONS if f"#SBATCH --{o.long}" not in texts]
    missing += [
        o.short for o in SLURM_OPTIONS if o.short and f"#SBATCH -{o.short}" not in texts
    ]
    assert not missing


def test_every_option_of_qsub_has_a_sample() -> None:
    texts = "\n".join(path.read_text() for path in SAMPLES if path.parent.name == "qsub")
    assert not [o.name for o in SGE_OPTIONS if f" -{o.name}" not in texts]


SCRIPTS = [path for path in SAMPLES if path.parent.name in ("sbatch", "qsub")]


@pytest.mark.parametrize("sample", SCRIPTS, ids=name_of)
def test_no_directive_goes_by_without_a_word(sample: Path) -> None:
    """A misreading is never silent: where there is a job, every directive has a note."""
    imported = import_text(sample.name, sample.read_bytes())
    told = {note.line for note in (*imported.notes, *imported.errors)}
    mark = "#SBATCH" if sample.parent.name == "sbatch" else "#$ "
    lines = sample.read_bytes().decode().split("\n")
    inside = {number for number, line in enumerate(lines, 1) if line.startswith(mark)}
    assert imported.errors or inside <= told
