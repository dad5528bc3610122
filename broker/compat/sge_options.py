"""Every option of Grid Engine's qsub, how many values it takes, and what becomes of it where no
code of its own decides that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.compat.notes import Findings, Level, short
from broker.compat.words import split_words


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name without the dash, and how many words follow it."""

    name: str
    values: int = 1
    level: Level | None = None
    text: str = ""


def _read(names: str, values: int = 1) -> tuple[Option, ...]:
    return tuple(Option(name, values) for name in names.split())


def _told(level: Level, text: str, names: str, values: int = 1) -> tuple[Option, ...]:
    return tuple(Option(name, values, level, text) for name in names.split())


_I, _W, _E = Level.IGNORED, Level.WARNING, Level.ERROR

OPTIONS: tuple[Option, ...] = (
    *_read("N l t tc o e i j S v wd P A p r q a b sync m M"),
    *_read("pe", 2),
    *_read("cwd V terse hard soft verify help clear", 0),
    *_read("hold_jid hold_jid_ad w h"),
    *_told(_I, "a context or label of one site", "ac dc sc"),
    *_told(_I, "sharing trees and tickets are a site's own", "js ot"),
    *_told(_I, "the site binds processes as it likes", "binding"),
    *_told(_I, "a text for filters of one site", "jsv"),
    *_told(_I, "no terminal is given to a batch job", "pty now display"),
    *_told(_I, "no terminal is given to a batch job", "nostdin noshell", 0),
    *_told(_I, "said of the submit command", "verbose", 0),
    *_told(_I, "the site decides on the shell it starts from", "shell"),
    *_told(_I, "nothing is reserved in advance for a single job", "R"),
    *_told(_W, "the deadline is not carried over: a job file has `deadline:`", "dl"),
    *_told(_W, "no signal comes before a suspension; TERM comes before the end", "notify", 0),
    *_told(_W, "checkpoints of Grid Engine are not made; write them in the job", "c ckpt"),
    *_told(_W, "queues of one site are not carried over", "masterq"),
    *_told(_W, "reservations of a site are not used", "ar"),
    *_told(_W, "the job runs as its submitter", "u"),
    *_told(_E, "options are read from the script and the command line only", "@"),
    *_told(_E, "the prefix of directives is #$ here; write them so", "C"),
    *_told(_E, "a job inside a job of Grid Engine is not there", "inherit", 0),
)  # fmt: skip

BY_NAME = {option.name: option for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class Given:
    """An option as given; `soft` = behind -soft, so only a wish."""

    option: Option
    values: tuple[str, ...]
    line: int
    written: str
    soft: bool = False

    @property
    def value(self) -> str:
        """Its first value; empty for a flag."""
        return self.values[0] if self.values else ""


def script_options(text: str, findings: Findings) -> list[Given]:
    """The options of all lines that begin with #$, anywhere in the script, as qsub reads them."""
    given: list[Given] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("#$"):
            continue
        rest = line[2:].strip()
        if not rest.startswith("-"):
            if rest and not rest.endswith("$"):  # $Id$ and the like are marks of other tools
                findings.warning(number, short(line), "no option: left out")
            continue
        split = split_words(rest)
        if split.problem:
            findings.error(number, short(line), split.problem)
            continue
        if split.cut:
            findings.warning(
                number, short(line), f"{short(split.cut, 40)} is read as a comment"
            )
        found, left = read_options(split.words, number, findings)
        given += found
        if left:
            findings.warning(number, left[0], "not an option: left out")
    return given


def read_options(
    words: Sequence[str], line: int, findings: Findings
) -> tuple[list[Given], list[str]]:
    """(options, the words from the first that is none on) of one line."""
    given: list[Given] = []
    left, soft = list(words), False
    while left and left[0].startswith("-") and len(left[0]) > 1:
        word = left.pop(0)
        option = BY_NAME.get(word[1:])
        if option is None:
            _unknown(word, left, line, findings)
            continue
        values = tuple(left[: option.values])
        del left[: option.values]
        written = " ".join([word, *values])
        if len(values) < option.values:
            findings.error(line, written, f"{word} needs {option.values} value(s)")
            continue
        if option.name in ("hard", "soft"):
            soft = option.name == "soft"
        given.append(Given(option, values, line, written, soft))
    return given, left


def _unknown(word: str, left: list[str], line: int, findings: Findings) -> None:
    if left and not left[0].startswith("-") and line:
        findings.warning(
            line, f"{word} {left.pop(0)}", "unknown option: left out, with the word after it"
        )
    else:
        findings.warning(line, word, "unknown option: left out")
