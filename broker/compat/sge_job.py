"""A qsub script of Grid Engine, with the words of its command line, as a job."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.compat import sge_values as values
from broker.compat.accelerator_names import ANY_NVIDIA, UnknownModel, models, request
from broker.compat.imported import After, Draft, Imported
from broker.compat.kinds import Kind
from broker.compat.notes import short
from broker.compat.sge_asked import Asked
from broker.compat.sge_options import Given, read_options, script_options
from broker.compat.sge_surroundings import read_environment, read_streams
from broker.compat.sge_wrapper import Setting, wrap
from broker.compat.words import names
from federation.runs import format_array
from federation.units import GIB, exact_bytes, format_duration

_PLAIN = re.compile(r"[^\x20-\x7e]")
_JOB = re.compile(r"[0-9]{1,12}|j[0-9a-hjkmnp-tv-z]{16}", re.ASCII)
_MEMORY = (
    "h_vmem",
    "mem_free",
    "h_rss",
    "s_vmem",
    "virtual_free",
    "vf",
    "mem",
    "mem_reserve",
    "h_data",
    "s_rss",
    "m_mem_free",
    "ram",
    "memory",
)
_CARDS = names("gpu gpus ngpus cuda nvidia_gpu gpu_card num_gpu v_gpu gpuslot")
_MODELS = names("gpu_type gputype gpu_model cuda_name gpu_name nvidia_type gpu_card_type")
_ELSEWHERE = names("qrsh qsh qlogin qmake qsub qalter qmod qacct qstat qdel qhost rsh_wrapper")
_ONE_NODE = re.compile(r"smp|openmp|omp|thread|shm|shared|serial|multicore|single|make", re.I)
_RETRIES = 5
MEMORY_PER_SLOT_BYTES = 2 * GIB


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Words of qsub said beside the script, the script's arguments, and whether it is a command
    (`-b y`) rather than a script."""

    words: Sequence[str] = ()
    arguments: Sequence[str] = ()


def import_qsub(name: str, text: str, line: CommandLine | None = None) -> Imported:
    """The job of the qsub script `text` called `name`; its command line wins over it."""
    said = line or CommandLine()
    draft = Draft(Kind.QSUB)
    spoken, left = read_options(said.words, 0, draft.findings)
    for word in left[:1]:
        draft.findings.warning(0, word, "not an option: left out")
    asked = Asked([*script_options(text, draft.findings), *spoken], draft.findings)
    for one in asked.last.values():
        if one.option.level is not None:
            draft.findings.add(one.option.level, one.line, one.written, one.option.text)
    _describe(draft, asked, name)
    slots = _slots(draft, asked)
    _limits(draft, asked, slots)
    _order(draft, asked)
    array = _array(draft, asked)
    read_streams(draft, asked, array=array is not None)
    read_environment(draft, asked)
    draft.directives = [(one.line, one.written) for one in asked.last.values()]
    if "i" in asked:
        asked.tell(draft.findings.understood, "i", "the script reads this file")
    if not draft.findings.failed:
        _body(draft, text)
        wrapper = Setting(
            script=text,
            name=str(draft.data["name"]),
            slots=slots,
            arguments=said.arguments,
            shell=_shell(draft, asked, text),
            array=array,
            directory=_directory(draft, asked),
            parallel=asked.value("pe"),
            queue=asked.value("q"),
            stdin=asked.value("i") or "/dev/null",
        )
        draft.put("run", wrap(wrapper))
        draft.put("workdir", ".")
    return draft.finish()


def _describe(draft: Draft, asked: Asked, name: str) -> None:
    title = _PLAIN.sub("?", asked.value("N") or posixpath.basename(name))[:128]
    draft.put("name", title or "STDIN", asked.line("N"))
    if "N" in asked:
        asked.tell(draft.findings.understood, "N", f"name: {title}")
    for option, label in (("P", "project"), ("A", "account"), ("q", "queue")):
        if option in asked:
            value = _PLAIN.sub("?", asked.value(option))[:255]
            draft.data.setdefault("labels", {})[f"sge-{label}"] = value
            draft.lines["labels"] = asked.line(option)
            asked.tell(
                draft.findings.translated,
                option,
                f"kept as the label sge-{label}; it decides nothing unless a policy matches it",
            )


def _slots(draft: Draft, asked: Asked) -> int:
    if "pe" not in asked:
        return 1
    one = asked.last["pe"]
    found = asked.parsed(one, one.values[1], values.slots)
    if found is None:
        return 1
    slots, ranged = found
    if ranged:
        draft.findings.translated(
            one.line, one.written, f"{slots} slots: a job has one size here"
        )
    draft.put("resources.cpus", slots, one.line)
    text = f"resources.cpus: {slots}, on one node"
    if _ONE_NODE.search(one.value):
        draft.findings.understood(one.line, one.written, text)
    else:
        draft.findings.warning(
            one.line,
            one.written,
            f"{text}: whether {one.value} spreads over nodes is a site's own",
        )
    return slots


def _limits(draft: Draft, asked: Asked, slots: int) -> None:
    memory: int | None = None
    cards, kind = 0, ""
    for name, (text, one) in asked.resources.items():
        written = f"-l {name}={text}"
        if name in ("h_rt", "s_rt"):
            _runtime(draft, asked, name, (text, one))
        elif name in _MEMORY:
            size = asked.parsed(one, text, values.size_bytes)
            memory = max(memory or 0, (size or 0) * slots)
            draft.findings.understood(one.line, written, f"a slot; {slots} slots")
            draft.lines["resources.memory"] = one.line
        elif name in _CARDS:
            number = asked.parsed(one, "1" if text == "TRUE" else text, _whole)
            cards = (number or 0) * slots
            draft.lines["resources.accelerators"] = one.line
            draft.findings.translated(one.line, written, f"{cards} accelerators: {slots} slots")
        elif name in _MODELS:
            kind = text
            draft.findings.understood(one.line, written, "model of accelerator")
        else:
            draft.findings.warning(
                one.line, written, "a resource of one site: not carried over"
            )
    _memory(draft, memory, slots)
    _accelerators(draft, cards, kind)


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text, re.ASCII):
        raise values.BadValue("not a whole number")
    return int(text)


def _runtime(draft: Draft, asked: Asked, name: str, given: tuple[str, Given]) -> None:
    text, one = given
    seconds = asked.parsed(one, text, values.time_s)
    if seconds is None:
        return
    if name == "s_rt" and "h_rt" in asked.resources:
        draft.findings.warning(
            one.line, f"-l s_rt={text}", "TERM comes preempt_grace before the end, not at s_rt"
        )
        return
    draft.put("max_runtime", format_duration(seconds), one.line)
    draft.findings.understood(
        one.line, f"-l {name}={text}", f"max_runtime: {format_duration(seconds)}"
    )


def _memory(draft: Draft, memory: int | None, slots: int) -> None:
    line = draft.lines.get("resources.memory", 0)
    text = exact_bytes(memory or MEMORY_PER_SLOT_BYTES * slots)
    draft.put("resources.memory", text, line)
    if memory is None:
        draft.findings.translated(
            0, "", f"resources.memory: {text}: 2GiB a slot, as none is said"
        )


def _accelerators(draft: Draft, cards: int, kind: str) -> None:
    if not cards:
        return
    line = draft.lines.get("resources.accelerators", 0)
    chosen = ANY_NVIDIA
    if kind:
        try:
            chosen = models([kind])
        except UnknownModel as error:
            draft.findings.error(line, kind, str(error))
    else:
        draft.findings.warning(
            line,
            "gpu",
            "no model of GPU is named: any NVIDIA card of the federation will do, and"
            " cost decides which",
        )
    draft.put("resources.accelerators", request(chosen, cards), line)


def _order(draft: Draft, asked: Asked) -> None:
    if asked.yes("r"):
        draft.put("retry", {"attempts": _RETRIES, "on": ["lost", "preempted"]}, asked.line("r"))
        asked.tell(
            draft.findings.translated,
            "r",
            f"retry: {_RETRIES} attempts, after lost and preempted",
        )
    elif "r" in asked:
        asked.tell(draft.findings.understood, "r", "one attempt, which is the default")
    if "a" in asked:
        asked.tell(
            draft.findings.error, "a", "a later start cannot be asked for: submit it then"
        )
    if "h" in asked:
        asked.tell(
            draft.findings.error,
            "h",
            "a job cannot be held before it is there: submit it without, then `tradewind hold`",
        )
    if "p" in asked:
        asked.tell(
            draft.findings.ignored,
            "p",
            "priorities of a site are not carried over; use `tradewind priority`",
        )
    for option in ("m", "M"):
        if option in asked:
            asked.tell(
                draft.findings.ignored,
                option,
                "Tradewind sends no mail: use `tradewind wait` or the event stream",
            )
    if "hold_jid_ad" in asked:
        asked.tell(draft.findings.error, "hold_jid_ad", "only whole jobs can be waited for")
    if "hold_jid" in asked:
        _waits(draft, asked)


def _waits(draft: Draft, asked: Asked) -> None:
    waits = []
    for job in filter(None, asked.value("hold_jid").split(",")):
        if not _JOB.fullmatch(job):
            asked.tell(
                draft.findings.error, "hold_jid", f"{job[:40]}: only ids can be waited for"
            )
            return
        waits.append(After(job, "ended", asked.line("hold_jid")))
    draft.client = replace(draft.client, after=tuple(waits))
    if waits:
        asked.tell(
            draft.findings.translated,
            "hold_jid",
            "depends_on: " + ", ".join(f"{w.job} ended" for w in waits),
        )


def _array(draft: Draft, asked: Asked) -> tuple[int, int, int] | None:
    if "t" not in asked:
        if "tc" in asked:
            asked.tell(draft.findings.ignored, "tc", "the job is no array")
        return None
    one = asked.last["t"]
    found = asked.parsed(one, one.value, values.tasks)
    if found is None:
        return None
    runs, shape = found
    limit = asked.parsed(asked.last["tc"], asked.value("tc"), _whole) if "tc" in asked else None
    draft.put("array", format_array(runs, limit or None), one.line)
    draft.findings.understood(one.line, one.written, f"array of {runs.count} tasks")
    if limit:
        asked.tell(draft.findings.understood, "tc", f"at most {limit} tasks at once")
    return shape


def _shell(draft: Draft, asked: Asked, text: str) -> str:
    """The program that reads the script; empty when its own first line says so."""
    if "S" in asked:
        shell = asked.value("S").split(",")[0].rpartition(":")[2]
        asked.tell(draft.findings.understood, "S", f"{short(shell)} reads the script")
        return shell
    if text.startswith("#!"):
        draft.findings.translated(
            1,
            short(text.partition("\n")[0]),
            "the first line names the shell, whatever a queue would say",
        )
        return ""
    draft.findings.warning(
        1, "", "no -S and no #!: /bin/sh reads the script (a queue may differ)"
    )
    return "/bin/sh"


def _directory(draft: Draft, asked: Asked) -> str:
    if "wd" in asked:
        if "cwd" in asked:
            asked.tell(draft.findings.ignored, "cwd", "-wd says where")
        asked.tell(draft.findings.translated, "wd", "the job goes there at its start")
        return asked.value("wd")
    how = draft.findings.understood if "cwd" in asked else draft.findings.translated
    line = asked.last["cwd"] if "cwd" in asked else None
    how(
        line.line if line else 0,
        line.written if line else "",
        "workdir: the directory it is submitted from is sent along, and the job starts in the copy"
        + ("" if line else " (Grid Engine would start it in the home directory)"),
    )
    return ""


def _body(draft: Draft, text: str) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#"):
            continue
        word = next((w for w in re.findall(r"[\w.-]+", line) if w in _ELSEWHERE), "")
        if word:
            draft.findings.warning(
                number, word, "is there on Grid Engine sites only: the job is kept to them"
            )
            draft.only = "gridengine"
            return
