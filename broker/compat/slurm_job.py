"""An sbatch script, with the words of its command line, as a job."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from broker.compat import slurm_values as values
from broker.compat.accelerator_names import request
from broker.compat.imported import Draft, Imported
from broker.compat.kinds import Kind
from broker.compat.notes import Findings, short
from broker.compat.slurm_asked import Asked
from broker.compat.slurm_body import Body, study
from broker.compat.slurm_directives import (
    HETJOB,
    Given,
    Word,
    last_of_each,
    read_options,
    script_options,
)
from broker.compat.slurm_features import read_constraint, read_licences
from broker.compat.slurm_layout import Layout, arrange
from broker.compat.slurm_surroundings import read_client, read_environment
from broker.compat.slurm_wrapper import Setting, wrap
from federation.jobs import ArraySpec
from federation.runs import InvalidRuns, parse_array
from federation.units import GIB, exact_bytes, format_duration

_NAME = re.compile(r"[^\x20-\x7e]")
_CLUSTER = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
_STEP = re.compile(r"[0-9]+-[0-9]+:([0-9]+)", re.ASCII)
_RETRIES = 5
_COUNTS = (
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "ntasks-per-gpu",
    "cpus-per-task",
    "cpus-per-gpu",
)
_CARDS = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "tres-per-task")
MEMORY_PER_CPU_BYTES = 2 * GIB


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What was said beside the script: words of sbatch, and the script's own arguments.

    `variables` are options said by the submitter's environment (SBATCH_PARTITION and the like);
    `here` is the absolute path of the directory it is submitted from, "" if that is not known.
    """

    words: Sequence[str] = ()
    arguments: Sequence[str] = ()
    variables: Sequence[tuple[str, str]] = ()
    here: str = ""


def import_sbatch(name: str, text: str, line: CommandLine | None = None) -> Imported:
    """The job of the sbatch script `text` called `name`; its command line wins over it."""
    said = line or CommandLine()
    draft = Draft(Kind.SBATCH)
    given = _given(text, said, draft.findings)
    asked = Asked(given, draft.findings)
    if "\r\n" in text:
        draft.findings.error(1, "", "the lines end in CR LF (DOS): sbatch refuses that too")
    if not text.startswith("#!"):
        draft.findings.error(
            1, short(text.partition("\n")[0]), "the first line must begin with #!"
        )
    _simple(asked)
    layout = arrange(asked)
    _describe(draft, asked, name)
    _limits(draft, asked)
    array = _array(draft, asked)
    read_client(draft, asked)
    read_environment(draft, asked)
    if layout is None or draft.findings.failed:
        return draft.finish()
    _resources(draft, asked, layout)
    draft.directives = [(one.line, one.written) for one in given.values()]
    _run(draft, asked, _Text(text, said.arguments, said.here), (layout, array))
    return draft.finish()


def _given(text: str, said: CommandLine, findings: Findings) -> dict[str, Given]:
    if ":" in said.words:
        findings.error(0, ":", HETJOB)
    read = read_options([Word(word, 0) for word in said.words], findings)
    for word in read.rest[:1]:
        findings.warning(0, word.text, "not an option: left out")
    in_environment = [Word(f"--{n}={v}" if v else f"--{n}", 0) for n, v in said.variables]
    between = read_options(in_environment, findings)
    return last_of_each(
        [*script_options(text, findings), *between.given, *read.given], findings
    )


def _simple(asked: Asked) -> None:
    """Options of which nothing but a note is made."""
    if "wrap" in asked:
        if asked.line("wrap"):
            asked.error("wrap", "belongs on the command line: the script is here")
        else:
            asked.understood("wrap", "the command is the script")
    for one in asked.given.values():
        if one.option.level is not None:
            asked.findings.add(one.option.level, one.line, one.written, one.option.text)


# Name, owner, place -------------------------------------------------------------------------------


def _describe(draft: Draft, asked: Asked, name: str) -> None:
    title = asked.given["job-name"].value if "job-name" in asked else posixpath.basename(name)
    clean = _NAME.sub("?", title)[:128]
    draft.put("name", clean or "sbatch", asked.line("job-name"))
    if "job-name" in asked:
        asked.understood("job-name", f"name: {clean}")
    for option in ("account", "partition", "qos", "comment"):
        if option in asked:
            value = _NAME.sub("?", asked.given[option].value)[:255]
            draft.data.setdefault("labels", {})[f"slurm-{option}"] = value
            draft.lines["labels"] = asked.line(option)
            asked.translated(
                option,
                f"kept as the label slurm-{option}; it decides nothing here"
                " unless a policy matches it",
            )
    _clusters(draft, asked)
    read_constraint(draft, asked)
    _exclusive(asked)


def _clusters(draft: Draft, asked: Asked) -> None:
    if "clusters" not in asked:
        return
    names = [part.strip() for part in asked.given["clusters"].value.split(",")]
    if names == ["all"]:
        asked.understood("clusters", "everywhere, as without it")
        return
    wrong = [name for name in names if not _CLUSTER.fullmatch(name)]
    if wrong:
        asked.error("clusters", f"{wrong[0][:40]!r} is no cluster's name here: a-z, 0-9 and -")
        return
    draft.put("placement.clusters", list(dict.fromkeys(names)), asked.line("clusters"))
    asked.translated("clusters", f"placement.clusters: {', '.join(names)}")


def _exclusive(asked: Asked) -> None:
    if "exclusive" in asked:
        asked.warning(
            "exclusive",
            "a node of its own cannot be asked for: the job gets what it"
            " asks for, and others may be beside it",
        )


# Time, retries, order -----------------------------------------------------------------------------


def _begin(asked: Asked) -> None:
    if "begin" not in asked:
        return
    if asked.given["begin"].value in ("now", "now+0"):
        asked.understood("begin", "as soon as it can, as without it")
    else:
        asked.error("begin", "a later start cannot be asked for: submit it then (cron, at)")


def _limits(draft: Draft, asked: Asked) -> None:
    _begin(asked)
    if "time" in asked:
        seconds = asked.read("time", values.time_s)
        if seconds is not None:
            text = format_duration(seconds)
            draft.put("max_runtime", text, asked.line("time"))
            asked.understood("time", f"max_runtime: {text}")
        elif not draft.findings.failed:
            asked.translated(
                "time", "no limit asked for: the tenant's default max_runtime holds"
            )
    notice = asked.read("signal", values.signal)
    if notice is not None:
        seconds = max(notice.seconds, 1)
        draft.put("preempt_grace", format_duration(seconds), asked.line("signal"))
        other = "" if notice.name in ("TERM", "15") else f", not {notice.name}"
        asked.warning(
            "signal",
            f"preempt_grace: {format_duration(seconds)}; the signal before the"
            f" end is TERM{other}, to the whole job",
        )
    if "requeue" in asked and "no-requeue" not in asked:
        draft.put(
            "retry", {"attempts": _RETRIES, "on": ["lost", "preempted"]}, asked.line("requeue")
        )
        asked.translated("requeue", f"retry: {_RETRIES} attempts, after lost and preempted")
    if "no-requeue" in asked:
        asked.understood("no-requeue", "one attempt, which is the default")
    if "tmp" in asked:
        size_bytes = asked.read("tmp", values.memory_bytes)
        if size_bytes:
            draft.put("resources.disk", exact_bytes(size_bytes), asked.line("tmp"))
            asked.translated("tmp", f"resources.disk: {exact_bytes(size_bytes)}")


def _array(draft: Draft, asked: Asked) -> ArraySpec | None:
    if "array" not in asked:
        return None
    text = asked.given["array"].value.strip("[]")
    try:
        array = ArraySpec(*parse_array(text))
    except InvalidRuns as error:
        asked.error("array", f"{error.rule}; {error.remedy}")
        return None
    draft.put("array", str(array), asked.line("array"))
    asked.understood("array", f"array: {short(str(array), 60)}, {array.tasks.count} tasks")
    return array


# The job itself -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Text:
    script: str
    arguments: Sequence[str]
    here: str


def _switches(draft: Draft, asked: Asked, nodes: int) -> None:
    """One switch is what a rack is here; a wish that may be given up after a while is none."""
    if "switches" not in asked:
        return
    count, _, wait = asked.given["switches"].value.partition("@")
    if nodes == 1:
        asked.understood("switches", "one node is on one switch")
    elif count == "1" and not wait:
        draft.put("resources.topology", "rack", asked.line("switches"))
        asked.translated("switches", "resources.topology: rack, for as long as it waits")
    elif count == "1":
        asked.warning(
            "switches", "one switch cannot be asked for a while only: without @, it is topology"
        )
    else:
        asked.warning("switches", "the number of switches cannot be asked for, only one")


def _resources(draft: Draft, asked: Asked, layout: Layout) -> None:
    first = next((n for n in ("ntasks", "nodes", "cpus-per-task") if n in asked), "nodes")
    if layout.nodes > 1:
        draft.put("resources.replicas", layout.nodes, asked.line("nodes"))
    _switches(draft, asked, layout.nodes)
    read_licences(draft, asked, layout.nodes)
    draft.put("resources.cpus", layout.cpus, asked.line("cpus-per-task") or asked.line(first))
    if layout.memory_bytes is not None:
        name = next(n for n in ("mem", "mem-per-cpu", "mem-per-gpu") if n in asked)
        text = exact_bytes(layout.memory_bytes)
        draft.put("resources.memory", text, asked.line(name))
        asked.understood(name, f"resources.memory: {text} a node")
    else:
        text = exact_bytes(layout.cpus * MEMORY_PER_CPU_BYTES)
        draft.put("resources.memory", text)
        draft.findings.translated(
            0, "", f"resources.memory: {text}: 2GiB a cpu, as no --mem says how much"
        )
    wanted = request(layout.gpu_models, layout.gpus) if layout.gpus else ""
    shown = wanted if isinstance(wanted, str) else f"{layout.gpus} of {len(wanted)} models"
    for form in (name for name in _CARDS if name in asked):
        if wanted:
            draft.put("resources.accelerators", wanted, asked.line(form))
        asked.understood(form, f"resources.accelerators: {shown or 'none'} a node")
    shape = f"{layout.nodes} x {layout.cpus} cpus"
    for name in _COUNTS:
        if name in asked:
            asked.understood(
                name, f"{layout.tasks} tasks of {layout.cpus_per_task} cpus: {shape}"
            )


def _run(
    draft: Draft, asked: Asked, text: _Text, shape: tuple[Layout, ArraySpec | None]
) -> None:
    layout, array = shape
    body = study(text.script, layout)
    _tell_body(draft, body)
    step = _STEP.search(asked.given["array"].value) if "array" in asked else None
    directory = _directory(draft, asked, text.here)
    setting = Setting(
        script=text.script,
        layout=layout,
        name=str(draft.data["name"]),
        arguments=text.arguments,
        array=array,
        step=int(step[1]) if step and int(step[1]) else 1,
        directory=directory,
        stdin=_stdin(asked, directory),
        said=_said(asked, layout),
        walltime_s=asked.read("time", values.time_s),
        native=bool(body.only_slurm),
    )
    draft.put("run", wrap(setting))
    draft.put("workdir", ".")


def _tell_body(draft: Draft, body: Body) -> None:
    for line, what, why in body.warnings:
        draft.findings.warning(line, what, why)
    for line, what, why in body.only_slurm:
        draft.findings.warning(line, what, f"{why}: the job is kept to Slurm sites")
    if body.only_slurm:
        draft.only = "slurm"


def _directory(draft: Draft, asked: Asked, here: str) -> str:
    option = "chdir" if "chdir" in asked else "workdir"
    if option not in asked:
        draft.findings.translated(
            0,
            "",
            "workdir: the directory it is submitted from is sent along, and the job starts"
            " in the copy",
        )
        return ""
    path = posixpath.normpath(asked.given[option].value or ".")
    if here and (path == here or path.startswith(f"{here.rstrip('/')}/")):
        path = posixpath.relpath(path, here)
    draft.client = replace(draft.client, directory=path)
    if path == ".":
        asked.understood(option, "the copy of the submit directory")
        return ""
    if path.startswith("/"):
        asked.translated(
            option,
            "the job goes there at its start, and ends if the site has no such directory",
        )
    else:
        asked.translated(option, "the job goes there, in the copy of the submit directory")
    return path


def _stdin(asked: Asked, directory: str) -> str:
    if "input" not in asked:
        return "/dev/null"
    path = asked.given["input"].value
    if "%" in path:
        asked.warning(
            "input", "patterns are not filled in: the file of exactly this name is read"
        )
    asked.understood("input", f"the script reads {short(path)}")
    return path


def _said(asked: Asked, layout: Layout) -> dict[str, str]:
    """Variables Slurm sets only where their option is given."""
    rules: tuple[tuple[str, str, Callable[[], str]], ...] = (
        ("cpus-per-task", "SLURM_CPUS_PER_TASK", lambda: str(layout.cpus_per_task)),
        ("ntasks-per-node", "SLURM_NTASKS_PER_NODE", lambda: str(layout.tasks_per_node)),
        ("cpus-per-gpu", "SLURM_CPUS_PER_GPU", lambda: asked.given["cpus-per-gpu"].value),
        ("gpus", "SLURM_GPUS", lambda: str(layout.gpus * layout.nodes)),
        ("gpus-per-node", "SLURM_GPUS_PER_NODE", lambda: asked.given["gpus-per-node"].value),
        (
            "gpus-per-task",
            "SLURM_GPUS_PER_TASK",
            lambda: _last(asked.given["gpus-per-task"].value),
        ),
        ("partition", "SLURM_JOB_PARTITION", lambda: asked.given["partition"].value),
        ("account", "SLURM_JOB_ACCOUNT", lambda: asked.given["account"].value),
        ("qos", "SLURM_JOB_QOS", lambda: asked.given["qos"].value),
    )
    said = {variable: value() for option, variable, value in rules if option in asked}
    for option, variable in (("mem", "NODE"), ("mem-per-cpu", "CPU"), ("mem-per-gpu", "GPU")):
        size_bytes = asked.read(option, values.memory_bytes)
        if size_bytes and layout.memory_bytes is not None:
            said[f"SLURM_MEM_PER_{variable}"] = str(size_bytes >> 20)
    return said


def _last(text: str) -> str:
    return text.rpartition(":")[2]
