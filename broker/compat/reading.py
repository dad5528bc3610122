"""Any file people have, told apart by its content and read as a job."""

from __future__ import annotations

import re
from dataclasses import replace

from broker.compat import sge_job, slurm_job
from broker.compat.imported import Draft, Imported, failure
from broker.compat.kinds import Kind, kind_of_script, kind_of_yaml
from broker.compat.kubernetes import import_kubernetes
from broker.compat.skypilot import import_skypilot
from broker.compat.yaml_items import BadYaml, Item, read_yaml

MAX_BYTES = 1 << 20
_OTHERS = (
    (re.compile(r"^#PBS(\s|$)", re.MULTILINE), "PBS"),
    (re.compile(r"^#BSUB(\s|$)", re.MULTILINE), "LSF"),
    (re.compile(r"^#COBALT(\s|$)", re.MULTILINE), "Cobalt"),
    (re.compile(r"^#OAR(\s|$)", re.MULTILINE), "OAR"),
    (re.compile(r"^#flux:", re.MULTILINE), "Flux"),
)
_ADVICE = (
    "known are sbatch and qsub scripts, Kubernetes manifests, SkyPilot tasks and job files"
)


def import_text(name: str, text: str | bytes) -> Imported:
    """The job of the file `name` with this content, and what was made of each line.

    Never raises: what cannot be read is an error in the answer.
    """
    if isinstance(text, bytes):
        data = text
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            return failure(Kind.UNKNOWN, line, "not UTF-8 text")
    if len(text) > MAX_BYTES:
        return failure(Kind.UNKNOWN, 0, "larger than 1 MiB")
    if "\x00" in text:
        line = text[: text.index("\x00")].count("\n") + 1
        return failure(Kind.UNKNOWN, line, "holds a NUL character: not a text")
    kind = kind_of_script(text)
    if kind is Kind.SBATCH:
        return slurm_job.import_sbatch(name, text)
    if kind is Kind.QSUB:
        return sge_job.import_qsub(name, text)
    return _other(text)


def _other(text: str) -> Imported:
    for pattern, system in _OTHERS:
        if match := pattern.search(text):
            line = text[: match.start()].count("\n") + 1
            return failure(
                Kind.UNKNOWN, line, f"a script of {system} is not read here; {_ADVICE}"
            )
    if text.startswith("#!"):
        return failure(Kind.UNKNOWN, 1, "a script without directives: submit it with"
                       " `tradewind-sbatch`, or as a command after --")  # fmt: skip
    try:
        documents = read_yaml(text)
    except BadYaml as error:
        return failure(Kind.UNKNOWN, error.line, error.why)
    kind = kind_of_yaml(documents)
    if kind is Kind.KUBERNETES:
        return import_kubernetes(documents)
    if kind is Kind.SKYPILOT:
        return import_skypilot(documents)
    if kind is Kind.NATIVE and len(documents) == 1:
        return _native(documents[0])
    return failure(Kind.UNKNOWN, documents[0].line if documents else 0, f"not a job; {_ADVICE}")


def _native(root: Item) -> Imported:
    draft = Draft(Kind.NATIVE)
    for key, item in root.items():
        draft.data[key] = item.plain
        draft.lines[key] = item.line
        for inner, part in item.items():
            draft.lines[f"{key}.{inner}"] = part.line
    answer = draft.finish()
    if answer.job is not None:
        draft.findings.understood(0, "", "a job file of Tradewind's own")
        answer = replace(answer, notes=tuple(draft.findings.notes))
    return answer
