"""Which words of an srun command its stand-in off Slurm understands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from broker.compat.slurm_layout import Layout
from broker.compat.words import names

# Options the stand-in acts on (slurm_wrapper), those with a value first.
ACTED_ON = names("n ntasks N nodes c cpus-per-task ntasks-per-node gpus-per-task D chdir")
ACTED_FLAGS = names("l label K kill-on-bad-exit")
# Options that change nothing where there is one allocation and no binding.
EMPTY = names(
    "cpu-bind cpu_bind mem-bind mem_bind gpu-bind hint m distribution mem mem-per-cpu mem-per-gpu J"
    " job-name W wait threads-per-core cpu-freq gpu-freq cpus-per-gpu ntasks-per-gpu A account p"
    " partition acctg-freq comment S core-spec accel-bind q qos t time"
)
EMPTY_FLAGS = names(
    "u unbuffered Q quiet v verbose exact overlap exclusive O overcommit s oversubscribe k no-kill"
    " E preserve-env propagate contiguous"
)
_CARDS = names("gres gpus G gpus-per-node")
_SHORT_FLAGS = "lKuQvOskE"


def srun_problem(words: Sequence[str], layout: Layout) -> tuple[str, str]:
    """(why srun with these words cannot be run off Slurm, what it does otherwise); both may be
    empty. `words` follow `srun`; variables that are not known stand as `$NAME`."""
    left, warning = list(words), ""
    while left:
        word = left.pop(0)
        if word == "--":
            break
        if word.startswith("$"):
            return f"{word[:40]} may be an option, and is not known beforehand", ""
        if not word.startswith("-") or word == "-":
            return "", warning
        name, value, taken = _parts(word, left)
        if taken:
            left.pop(0)
        problem = _one(name, value, layout)
        if problem:
            return problem, ""
        if name in ("t", "time"):
            warning = "the time limit of a single step is not kept off Slurm"
    if not left:
        return "it starts no program that could be seen", ""
    return "", warning


def _parts(word: str, left: list[str]) -> tuple[str, str, bool]:
    """(name, value, whether the value is the next word)."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        takes = name in ACTED_ON | EMPTY | _CARDS | {"mpi", "export"}
        if equals or not takes:
            return name, value, False
        return name, left[0] if left else "", bool(left)
    if word[1] in _SHORT_FLAGS:
        alone = len(word) == 2 or word[1] == "K" or set(word[1:]) == {"v"}
        return word[1] if alone else word[1:], "", False
    if len(word) > 2:
        return word[1], word[2:], False
    return word[1], left[0] if left else "", bool(left)


def _one(name: str, value: str, layout: Layout) -> str:
    if name in ACTED_ON | EMPTY | ACTED_FLAGS | EMPTY_FLAGS:
        return ""
    if name == "mpi":
        return "" if value == "none" else "its MPI start-up is Slurm's own"
    if name == "export":
        return "" if value == "ALL" else "a part of the environment only"
    if name in _CARDS:
        match = re.search(r"(?:^|:)([0-9]{1,6})$", value)
        total = layout.gpus * (layout.nodes if name in ("gpus", "G") else 1)
        if match and int(match[1]) == total:
            return ""
        return "GPUs of a single step are parted by Slurm only"
    shown = f"--{name}" if len(name) > 1 else f"-{name}"
    return f"{shown[:40]} of srun is not there off Slurm"
