"""Whatever the file, `import_text` answers: a job with notes, or errors with their lines."""

from __future__ import annotations

import string
from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.compat.imported import Imported
from broker.compat.reading import import_text
from broker.compat.slurm_options import OPTIONS
from federation.jobs import JobSpec

SAMPLES = Path(__file__).parents[1] / "unit" / "compat" / "samples"
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(SAMPLES.rglob("*")) if path.is_file()]

letters = string.ascii_letters + string.digits + "-=:,@%[]()/\"'\\#$ {}*?"
words = st.text(alphabet=letters, max_size=30)
slurm_lines = st.builds(
    lambda option, value: f"#SBATCH --{option.long}={value}", st.sampled_from(OPTIONS), words
)
sge_lines = st.builds("#$ -{} {}".format, st.sampled_from("NltjoevqSpmMarhwP"), words)
bodies = st.lists(
    st.one_of(
        words, st.just("srun -n2 ./a"), st.just("cat <<EOF"), st.just("EOF"), st.just("x=$(srun a"),
        st.builds("srun {} prog".format, words), st.just("if true; then"), st.just("f() {"),
    ),
    max_size=8,
)  # fmt: skip
scripts = st.builds(
    lambda head, lines, body: "\n".join([head, *lines, *body]),
    st.sampled_from(["#!/bin/bash", "#!/bin/sh -l", "#!/usr/bin/env python3", "", "echo"]),
    st.lists(st.one_of(slurm_lines, sge_lines), max_size=6),
    bodies,
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words)
KEYS = (
    "apiVersion kind metadata spec template containers command args env name value resources limits"
    " requests cpu memory nvidia.com/gpu completions parallelism backoffLimit replicatedJobs"
    " pytorchReplicaSpecs Master Worker replicas any_of ordered accelerators cpus num_nodes run"
    " setup envs file_mounts workdir array labels files retry on image"
)
keys = st.sampled_from(KEYS.split())
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=25,
)
manifests = st.builds(
    lambda kind, spec: {"apiVersion": kind[0], "kind": kind[1], "spec": spec},
    st.sampled_from([
        ("batch/v1", "Job"), ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("kubeflow.org/v1", "PyTorchJob"),
    ]),
    trees,
)  # fmt: skip


def check(answer: Imported) -> None:
    """A job or an error, never both, never neither."""
    assert (answer.job is None) == bool(answer.errors)
    assert (answer.spec is None) == bool(answer.errors)
    assert answer.spec is None or isinstance(answer.spec, JobSpec)
    for note in (*answer.notes, *answer.errors):
        assert note.line >= 0 and str(note).isprintable()


@given(st.one_of(st.text(), st.binary()))
def test_any_text_and_any_bytes(content: str | bytes) -> None:
    check(import_text("x", content))


@settings(max_examples=300)
@given(scripts)
def test_anything_like_a_script(content: str) -> None:
    check(import_text("x.sbatch", content))


@given(st.one_of(trees, manifests))
def test_anything_like_a_manifest(tree: object) -> None:
    check(import_text("x.yaml", yaml.safe_dump(tree, allow_unicode=True)))


@settings(max_examples=300)
@given(st.data())
def test_samples_with_a_part_damaged(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 40, len(text))))
    middle = data.draw(st.one_of(words, st.text(max_size=5)))
    check(import_text("x", text[:start] + middle + text[end:]))


def test_what_has_broken_readers_before() -> None:
    deep = "[" * 5_000
    bomb = "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\nrun: x\n"
    for content in (
        deep, bomb, "run: 2026-99-99", "? [a]\n: b", "- 1\n- 2", "a: 1\na: 2",
        "!!python/object:os.x {}",
        "run: !!binary x", "x: 0x" + "f" * 400, "x: " + "9" * 5_000, "\ufeff#!/bin/sh\n#SBATCH -n",
        "#!/bin/sh\n#SBATCH --array=0-4000000000", "#!/bin/sh\n#SBATCH -t " + "9" * 30,
        "#!/bin/sh\n#$ -t 1-4000000000", "#!/bin/sh\n#$ -l h_vmem=99999999T",
        "#!/bin/sh\n#SBATCH --mem=99999999T\n", "\ud800", b"\xff\xfe", "#SBATCH\n", "#$ -@",
        "#!/bin/sh\n#SBATCH -n1\n" + "`" * 2_000, "#!/bin/sh\n#SBATCH -n2\nsrun " + "$(" * 2_000,
        "#!/bin/sh\n#SBATCH -N2\n" + "cat <<A\n" * 500,
    ):  # fmt: skip
        check(import_text("x", content))
