"""What an sbatch script asks of nodes and of a site beside cpus, memory and GPUs: features
(`--constraint`) and licences (`--licenses`)."""

from __future__ import annotations

import re
from itertools import product

from broker.compat.accelerator_names import is_model
from broker.compat.imported import Draft
from broker.compat.slurm_asked import Asked
from federation.features import FEATURE, WISH, in_words

ENTRIES_MAX = 16
TOKENS_MAX = 200
_TOKEN = re.compile(rf"\s*({FEATURE}|[&|()])")
_LICENCE = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?)(?:[:=]([0-9]{1,6}))?")
_CARDS = ("gres", "gpus", "gpus-per-node", "gpus-per-task")

Clauses = tuple[frozenset[str], ...]
"""Of each set, one word; of all sets."""


class _Unread(ValueError):
    """Why a constraint is not one that every site could keep."""


def read_constraint(draft: Draft, asked: Asked) -> None:
    """`resources.features`; models of GPU were read with the GPUs."""
    if "prefer" in asked:
        asked.warning("prefer", "what a job would rather have is not carried over")
    if "constraint" not in asked:
        return
    text = asked.given["constraint"].value
    words = [word for word in re.split(r"[|&,()\[\]\s*]+", text) if word]
    if any(form in asked for form in _CARDS) and all(is_model(word) for word in words):
        return
    try:
        wishes = _wishes(text)
    except _Unread as why:
        asked.error("constraint", f"{why}; a job file has `resources.features`")
        return
    draft.put("resources.features", wishes, asked.line("constraint"))
    asked.translated(
        "constraint",
        f"resources.features: {in_words(wishes)}: it runs only where nodes are told to have them",
    )


def read_licences(draft: Draft, asked: Asked, nodes: int) -> None:
    """`resources.extras`, which are counted per node of the job."""
    if "licenses" not in asked:
        return
    extras: dict[str, int] = {}
    for part in asked.given["licenses"].value.split(","):
        match = _LICENCE.fullmatch(part.strip())
        if match is None or match[1] in extras or int(match[2] or 1) < 1:
            asked.error(
                "licenses", f"{part[:40]!r}: write names with counts, as in matlab:2,ansys"
            )
            return
        extras[match[1]] = -(-int(match[2] or 1) // nodes)
    if len(extras) > ENTRIES_MAX:
        asked.error("licenses", f"{len(extras)} kinds of licence, at most {ENTRIES_MAX}")
        return
    draft.put("resources.extras", extras, asked.line("licenses"))
    named = ", ".join(f"{name}: {each}" for name, each in extras.items())
    per = f" for each of {nodes} nodes, rounded up" if nodes > 1 else ""
    asked.translated(
        "licenses", f"resources.extras: {named}{per}: it runs only where a site counts them"
    )


def _wishes(text: str) -> list[str]:
    """What all nodes must have, each entry with its alternatives. Raises _Unread."""
    if "*" in text:
        raise _Unread("so many nodes of each kind cannot be asked for")
    if "[" in text:
        raise _Unread(
            "alternatives that are the same on all nodes cannot be asked for: `(a|b)` can"
        )
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _Unread(f"{text[at : at + 40]!r} cannot be read: write words with & and |")
        tokens.append(match[1])
        at = match.end()
        if len(tokens) > TOKENS_MAX:
            raise _Unread("too many words and alternatives")
    clauses, rest = _expression(tokens)
    if rest:
        raise _Unread(f"{rest[0]!r} is out of place")
    wishes = sorted("|".join(sorted(clause)) for clause in set(_least(clauses)))
    if len(wishes) > ENTRIES_MAX or not all(re.fullmatch(WISH, wish) for wish in wishes):
        raise _Unread("too many words and alternatives")
    return wishes


def _expression(tokens: list[str]) -> tuple[Clauses, list[str]]:
    """From left to right, as Slurm does: neither `&` nor `|` binds closer."""
    left, rest = _operand(tokens)
    while rest and rest[0] in "&|":
        right, after = _operand(rest[1:])
        left = (*left, *right) if rest[0] == "&" else _either(left, right)
        rest = after
    return left, rest


def _operand(tokens: list[str]) -> tuple[Clauses, list[str]]:
    if not tokens or tokens[0] in ("&", "|", ")"):
        raise _Unread("a word is missing")
    if tokens[0] != "(":
        return (frozenset({tokens[0]}),), tokens[1:]
    if tokens.count("(") > ENTRIES_MAX:
        raise _Unread("too many parentheses")
    inner, rest = _expression(tokens[1:])
    if not rest or rest[0] != ")":
        raise _Unread("a ) is missing")
    return inner, rest[1:]


def _either(left: Clauses, right: Clauses) -> Clauses:
    if len(left) * len(right) > ENTRIES_MAX**2:
        raise _Unread("too many words and alternatives")
    return tuple(_least(tuple(one | other for one, other in product(left, right))))


def _least(clauses: Clauses) -> list[frozenset[str]]:
    """Without those that follow from another."""
    return [one for one in clauses if not any(other < one for other in clauses)]
