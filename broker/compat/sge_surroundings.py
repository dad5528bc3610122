"""What a qsub script says about its submitter and its surroundings: files and variables."""

from __future__ import annotations

import re
from dataclasses import replace

from broker.compat.imported import Draft
from broker.compat.notes import Level
from broker.compat.sge_asked import Asked

_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


def read_streams(draft: Draft, asked: Asked, *, array: bool) -> None:
    """What goes where: -o, -e, -j, and what is asked of the submit command."""
    name = str(draft.data["name"])
    default = f"{name}.o%A.%a" if array else f"{name}.o%A"
    output = _path(asked.value("o"))
    if output.endswith("/"):
        output += default
    draft.client = replace(
        draft.client,
        output=output or default,
        errors=_path(asked.value("e")),
        append=True,
        flags=frozenset(
            flag
            for flag, on in (
                ("sync", asked.yes("sync")),
                ("terse", "terse" in asked),
                ("verify", "verify" in asked),
                ("help", "help" in asked),
            )
            if on
        ),
    )
    if "o" in asked:
        asked.tell(
            draft.findings.understood, "o", "tradewind-qsub brings the output to this file"
        )
    if not asked.yes("j"):
        draft.findings.add(
            Level.WARNING if "e" in asked else Level.TRANSLATED,
            asked.line("e"),
            asked.last["e"].written if "e" in asked else "-j n",
            "stdout and stderr come back as one stream: both are in the -o file",
        )
    else:
        asked.tell(draft.findings.understood, "j", "stdout and stderr are one stream")
    for flag in ("sync", "terse", "verify", "help", "w", "b"):
        if flag in asked:
            asked.tell(draft.findings.ignored, flag, "asked of the submit command")


def _path(text: str) -> str:
    """A file name pattern with Grid Engine's pseudo variables as % marks."""
    path = text.split(",")[0].rpartition(":")[2]
    for name, mark in (
        ("$JOB_ID", "%A"),
        ("$TASK_ID", "%a"),
        ("$JOB_NAME", "%x"),
        ("$USER", "%u"),
        ("$HOSTNAME", "%N"),
        ("$HOME", "~"),
    ):
        path = path.replace(name, mark)
    return path


def read_environment(draft: Draft, asked: Asked) -> None:
    """Variables of -v and -V."""
    if "V" in asked:
        asked.tell(
            draft.findings.warning,
            "V",
            "the submitting shell's environment is never sent: name variables with -v",
        )
    if "v" not in asked:
        return
    env, inherit = {}, []
    for part in filter(None, asked.value("v").split(",")):
        name, equals, value = part.partition("=")
        if not _ENV.fullmatch(name):
            asked.tell(draft.findings.error, "v", f"{name[:40]!r} is no variable's name")
        elif equals:
            env[name] = value
        else:
            inherit.append(name)
    if env:
        draft.put("env", env, asked.line("v"))
    draft.client = replace(draft.client, inherit=tuple(inherit))
    asked.tell(draft.findings.translated, "v", f"env: {', '.join([*env, *inherit])}")
