"""What the commands of an sbatch script need of Slurm, and whether that can be had elsewhere.

Off a Slurm site a script finds the SLURM_* variables, a small `srun` and `scontrol show
hostnames`. Whatever needs more is told here, before the job is placed, and keeps the job to Slurm
sites.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, zip_longest

from broker.compat.notes import short
from broker.compat.shell_words import Command, Shell, read_shell
from broker.compat.slurm_layout import Layout
from broker.compat.srun_options import srun_problem
from broker.compat.words import names

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_VARIABLE = re.compile(r"\b(SLURMD?_[A-Z0-9_]+)\b")
_TOOLS = re.compile(
    r"(?<![\w./-])(salloc|sattach|sbatch|sbcast|scancel|sgather|sinfo|sacct|squeue|sstat|sprio"
    r"|strigger|sdiag|sshare|sreport)(?=\s|$|\))"
)
_MPI = re.compile(
    r"\b(openmpi|mpich|mvapich2?|impi|intelmpi|intel-mpi|I_MPI_\w+|OMPI_\w+|PMIX?_\w+|mpi4py|hpcx)\b",
    re.IGNORECASE,
)
_LAUNCHERS = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun"})
_NODELISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_MAX_WORDS = 1_000
# What a script may do on every node of a gang as well as on the first alone.
_ANYWHERE = names(
    "export set unset module ml source . conda micromamba cd pushd popd echo printf ulimit date"
    " hostname sleep true : exit umask shopt env printenv pwd which type declare local readonly"
    " nvidia-smi wait srun scontrol head deactivate test [ uname whoami id nproc"
)
# Variables the job finds off a Slurm site (slurm_wrapper sets them).
SUPPLIED = names(
    """SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NAME SLURM_JOB_NUM_NODES SLURM_NNODES SLURM_NTASKS
    SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE
    SLURM_JOB_CPUS_PER_NODE SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_GPUS
    SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_JOB_GPUS SLURM_SUBMIT_DIR
    SLURM_SUBMIT_HOST SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_TASK_PID SLURM_JOB_PARTITION
    SLURM_JOB_ACCOUNT SLURM_JOB_QOS SLURM_CLUSTER_NAME SLURM_JOB_NODELIST SLURM_NODELIST
    SLURMD_NODENAME SLURM_RESTART_COUNT SLURM_JOB_USER SLURM_JOB_UID SLURM_ARRAY_JOB_ID
    SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_MIN SLURM_ARRAY_TASK_MAX
    SLURM_ARRAY_TASK_STEP SLURM_EXPORT_ENV SLURM_GTIDS SLURM_JOB_START_TIME SLURM_STEP_ID
    SLURM_STEPID SLURM_STEP_NUM_TASKS SLURM_STEP_NUM_NODES SLURM_CPUS_PER_GPU
    SLURM_JOB_END_TIME"""
)
# Read, but of no consequence where they are not set.
_HARMLESS = frozenset(
    {
        "SLURM_EXPORT_ENV",
        "SLURM_CPU_BIND",
        "SLURM_MPI_TYPE",
        "SLURM_UNBUFFEREDIO",
        "SLURM_TMPDIR",
    }
)


@dataclass(slots=True)
class Body:
    """What was found. `only_slurm` holds (line, what, why) of what cannot be had elsewhere."""

    uses_srun: bool = False
    uses_slurm: bool = False
    only_slurm: list[tuple[int, str, str]] = field(default_factory=list)
    warnings: list[tuple[int, str, str]] = field(default_factory=list)

    def restrict(self, line: int, what: str, why: str) -> None:
        """Keep the job to Slurm sites."""
        self.only_slurm.append((line, short(what), why))


def study(text: str, layout: Layout) -> Body:
    """What the script `text` (with its first line) needs of Slurm when run as `layout` says."""
    body = Body(uses_slurm="SLURM" in text)
    is_shell = interpreter(text) in SHELLS
    _variables(text, body)
    body.uses_srun = re.search(r"\bsrun\b", _without_comments(text)) is not None
    if not is_shell:
        _other_language(text, layout, body)
        return body
    shell = read_shell(text)
    values = _settings(shell)
    for command in shell.commands:
        _tool(command, body)
        if command.name == "srun":
            _srun(command, layout, values, body)
    if layout.nodes > 1:
        for line, what, why in _head_only(shell, text):
            body.restrict(line, what, why)
            break
    if layout.tasks > 1 and body.uses_srun and not body.only_slurm:
        _message_passing(text, body)
    return body


def interpreter(text: str) -> str:
    """The program of the #! line: `bash` for `#!/usr/bin/env bash`; empty without one."""
    first = text.partition("\n")[0]
    words = first[2:].split() if first.startswith("#!") else []
    if not words:
        return ""
    name = words[0].rpartition("/")[2]
    following = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return following[0].rpartition("/")[2] if name == "env" and following else name


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))


def _variables(text: str, body: Body) -> None:
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#"):
            continue
        for name in _VARIABLE.findall(line):
            if name not in seen and name not in SUPPLIED and name not in _HARMLESS:
                seen.add(name)
                body.restrict(number, name, "this variable is set by Slurm alone")


def _other_language(text: str, layout: Layout, body: Body) -> None:
    """A script that is no shell script: any Slurm tool or second node needs Slurm."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#"):
            continue
        if match := re.search(r"\b(srun|scontrol)\b", line) or _TOOLS.search(line):
            body.restrict(
                number, match[1], "cannot be followed in a script that is no sh or bash"
            )
    if layout.nodes > 1:
        body.restrict(
            1, interpreter(text), "a script on the first of several nodes, no sh or bash"
        )


def _tool(command: Command, body: Body) -> None:
    if command.name == "scontrol":
        if command.words[1:3] not in (["show", "hostnames"], ["show", "hostname"]):
            body.restrict(
                command.line,
                " ".join(command.words),
                "only `scontrol show hostnames` is there off Slurm",
            )
    elif command.name in _LAUNCHERS:
        body.warnings.append(
            (command.line, command.name, "an MPI of the site starts it, if there is one")
        )
    elif match := _TOOLS.fullmatch(command.name):
        body.restrict(command.line, match[1], "is there on Slurm sites only")


def _settings(shell: Shell) -> dict[str, str]:
    """Variables that the script sets once, to a text known beforehand."""
    values: dict[str, str] = {}
    twice: set[str] = set()
    for command in shell.commands:
        pairs = list(command.sets)
        if command.name in ("export", "declare", "readonly", "local"):
            pairs += [
                (k, v) for k, eq, v in (w.partition("=") for w in command.words[1:]) if eq
            ]
        for name, value in pairs:
            if name in values:
                twice.add(name)
            values[name] = value
    return {
        name: value for name, value in values.items() if name not in twice and "$(" not in value
    }


def _srun(command: Command, layout: Layout, values: dict[str, str], body: Body) -> None:
    shown = short(" ".join(command.words))
    expanded = list(islice(_expanded(command.words[1:], values), _MAX_WORDS))
    problem, warning = srun_problem(expanded, layout)
    if not problem and layout.tasks > 1 and command.piped:
        problem = "its input goes to every task"
    if not problem and command.background and layout.nodes > 1:
        problem = "steps beside each other on several nodes are not kept apart"
    if problem:
        body.restrict(command.line, shown, problem)
    elif warning:
        body.warnings.append((command.line, shown, warning))


def _expanded(words: list[str], values: dict[str, str], depth: int = 0) -> Iterator[str]:
    for word in words:
        match = re.fullmatch(r"\$(?:\{(\w+)\}|(\w+))", word)
        name = (match[1] or match[2]) if match else ""
        if name in values and depth < 4:
            yield from _expanded(values[name].split(), values, depth + 1)
        else:
            yield word


def _head_only(shell: Shell, text: str) -> Iterator[tuple[int, str, str]]:
    """What a script on several nodes does that only the first of them may do."""
    why = "runs on the first node only, which the members of a gang cannot tell apart"
    for word, line in shell.keywords.items():
        yield line, word, f"a script on several nodes with `{word}` in it: {why}"
    if shell.functions or shell.heredocs:
        what = "functions" if shell.functions else "here documents"
        yield 0, what, f"a script on several nodes with {what} in it: {why}"
    for command in shell.commands:
        if command.name == "mkdir" and "-p" in command.words:
            continue
        if command.words and command.name not in _ANYWHERE:
            yield command.line, " ".join(command.words), why
        for target in command.redirects:
            if target not in ("/dev/null", "&1", "&2", "1", "2"):
                yield command.line, f"> {target}", "every node would write this file"
    yield from _node_lists(shell, text)


def _node_lists(shell: Shell, text: str) -> Iterator[tuple[int, str, str]]:
    """Only the first name of the node list is known off Slurm."""
    known = 0
    for command, following in zip_longest(shell.commands, shell.commands[1:]):
        if command.name != "scontrol":
            continue
        words = following.words if following and following.piped else []
        if words[:1] == ["head"] and words[1:] in (["-n", "1"], ["-n1"], ["-1"]):
            known += sum(name in " ".join(command.words) for name in _NODELISTS[:1])
            known += any("SLURM_NODELIST" in word for word in command.words)
        else:
            yield command.line, "scontrol show hostnames", "only the first node's name is known"
    mentions = len(re.findall(r"\bSLURM_(?:JOB_)?NODELIST\b", _without_comments(text)))
    if mentions > known:
        yield 0, "SLURM_JOB_NODELIST", "only the first node's name is known"


def _message_passing(text: str, body: Body) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        match = None if line.startswith("#") else _MPI.search(line)
        if match:
            body.restrict(number, match[1], "MPI programs under srun need Slurm's own start-up")
            return
    body.warnings.append(
        (
            0,
            "srun",
            "off Slurm it starts plain processes: a program that needs MPI's start-up by"
            " srun (PMI) must be kept to Slurm sites with --cluster",
        )
    )
