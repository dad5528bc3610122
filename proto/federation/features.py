"""Features of nodes: words a site gives its nodes (`ib`, `icelake`), and what a job asks of them.

A job lists what every node it runs on must have; an entry may name alternatives, `icelake|genoa`.
That is as much of Slurm's `--constraint` as means the same at every site.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

FEATURE = r"[A-Za-z0-9_][A-Za-z0-9_.:=+/-]{0,62}"
"""One word. Nothing in it has a meaning to a shell or to Slurm."""
WISH = rf"{FEATURE}(\|{FEATURE}){{0,15}}"
"""One entry: a word, or some of which one will do."""


def has_features(wanted: Sequence[str], has: Collection[str]) -> bool:
    """Whether a node with these features is one that was wanted."""
    return all(any(word in has for word in wish.split("|")) for wish in wanted)


def in_words(wanted: Sequence[str]) -> str:
    """What is wanted, for people: `ib and icelake|genoa`."""
    return " and ".join(wanted)


def as_expression(wanted: Sequence[str]) -> str:
    """What is wanted, as Slurm's `--constraint` takes it: `ib&(icelake|genoa)`."""
    return "&".join(f"({wish})" if "|" in wish and len(wanted) > 1 else wish for wish in wanted)
