"""What an sbatch script says about its submitter and its surroundings: files, variables, image."""

from __future__ import annotations

import re
from dataclasses import replace

from broker.compat import slurm_values as values
from broker.compat.imported import After, Client, Draft
from broker.compat.slurm_asked import Asked

_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_FLAGS = ("wait", "parsable", "test-only", "quiet", "verbose", "help", "usage", "version")


def read_client(draft: Draft, asked: Asked) -> None:
    """Output files, jobs waited for, and what is asked of the submit command."""
    waits: list[After] = []
    for wait in asked.read("dependency", values.dependencies) or ():
        waits.append(After(wait.job, wait.when, asked.line("dependency")))
    if waits:
        asked.translated(
            "dependency", "depends_on: " + ", ".join(f"{w.job} {w.when}" for w in waits)
        )
    for flag in _FLAGS:
        if flag in asked:
            asked.ignored(flag, "asked of the submit command; it changes nothing about the job")
    if "ignore-pbs" in asked:
        asked.understood("ignore-pbs", "#PBS lines are never read")
    pattern = asked.given["output"].value if "output" in asked else ""
    default = "slurm-%A_%a.out" if "array" in asked else "slurm-%j.out"
    draft.client = Client(
        output=pattern or default,
        errors=asked.given["error"].value if "error" in asked else "",
        append="open-mode" in asked and asked.given["open-mode"].value.startswith("a"),
        flags=frozenset(flag for flag in _FLAGS if flag in asked),
        after=tuple(waits),
    )
    if "output" in asked:
        asked.understood(
            "output",
            "tradewind-sbatch brings the output to this file; `tradewind"
            " logs` shows it anywhere",
        )
    if "error" in asked and asked.given["error"].value != pattern:
        asked.warning(
            "error", "stdout and stderr come back as one stream: both are in the --output file"
        )
    if "open-mode" in asked:
        asked.understood("open-mode", "as tradewind-sbatch writes the --output file")


def read_environment(draft: Draft, asked: Asked) -> None:
    """Variables of --export, and the image of --container-image."""
    if "export" in asked:
        _export(draft, asked)
    if "container-image" in asked:
        image = asked.given["container-image"].value
        if image.startswith(("/", "./")) or image.endswith(".sqsh"):
            asked.error(
                "container-image", "an image file lies at one site; name one of a registry"
            )
        else:
            full = image if "://" in image else f"docker://{image.replace('#', '/', 1)}"
            draft.put("image", full, asked.line("container-image"))
            asked.translated("container-image", f"image: {full}")


def _export(draft: Draft, asked: Asked) -> None:
    inherit: list[str] = []
    env: dict[str, str] = {}
    for part in _parts_of_export(asked.given["export"].value):
        name, equals, value = part.partition("=")
        if part.upper() in ("ALL", "NONE", "NIL", ""):
            continue
        if not _ENV.fullmatch(name):
            asked.error("export", f"{name[:40]!r} is no variable's name")
        elif equals:
            env[name] = value
        else:
            inherit.append(name)
    if env:
        draft.put("env", env, asked.line("export"))
    draft.client = replace(draft.client, inherit=tuple(inherit))
    names = ", ".join([*env, *inherit]) or "no variables"
    asked.translated(
        "export", f"env: {names}; the rest of the submitting shell's environment is never sent"
    )


def _parts_of_export(text: str) -> list[str]:
    """Parts between commas; a comma inside quotes belongs to the value."""
    parts, quote = [""], ""
    for character in text:
        if character in "\"'" and quote in ("", character):
            quote = "" if quote else character
        elif character == "," and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts
