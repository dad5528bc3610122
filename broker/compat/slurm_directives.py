"""Finding what an sbatch script and the words of its command line ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from broker.compat.notes import Findings, short
from broker.compat.slurm_options import BY_SHORT, Option, Takes, find_long
from broker.compat.words import split_words

_DIRECTIVE = re.compile(r"#SBATCH(?=\s|$)")
_NEARLY = re.compile(r"\s*#\s*sbatch\b|\s*#SBATCH\S", re.IGNORECASE)
_COMMENTED = re.compile(r"\s*##+\s*SBATCH\b")
_HETJOB = ("hetjob", "packjob", ":")


@dataclass(frozen=True, slots=True)
class Given:
    """An option as given: its value ("" for a flag), its line (0 = command line), as written."""

    option: Option
    value: str
    line: int
    written: str


@dataclass(frozen=True, slots=True)
class Word:
    """A word and the line it stands on."""

    text: str
    line: int


def directive_lines(text: str, findings: Findings) -> Iterator[tuple[int, str]]:
    """(line, what follows #SBATCH) of every directive before the first command of the script."""
    started = False
    for number, line in enumerate(text.split("\n"), 1):
        if started:
            if _DIRECTIVE.match(line):
                why = "stands after the first command: sbatch ignores it too"
                findings.warning(number, short(line.strip()), why)
            continue
        if match := _DIRECTIVE.match(line):
            yield number, line[match.end() :]
        elif line.lstrip().startswith("#") or not line.strip():
            _near_miss(number, line, findings)
        else:
            started = True


def _near_miss(number: int, line: str, findings: Findings) -> None:
    if _COMMENTED.match(line):
        findings.ignored(number, short(line.strip()), "commented out")
    elif _NEARLY.match(line):
        findings.warning(
            number, short(line.strip()), "not read: a directive begins with exactly #SBATCH"
        )


def script_options(text: str, findings: Findings) -> list[Given]:
    """The options of all #SBATCH lines, in order."""
    given: list[Given] = []
    for number, rest in directive_lines(text, findings):
        split = split_words(rest)
        if split.problem:
            findings.error(number, short(f"#SBATCH{rest}"), split.problem)
            continue
        if split.cut:
            findings.warning(
                number, short(f"#SBATCH{rest}"), f"{short(split.cut, 40)} is read as a comment"
            )
        if split.words and split.words[0] in _HETJOB or ":" in split.words:
            findings.error(number, short(f"#SBATCH{rest}"), HETJOB)
            continue
        words = [Word(word, number) for word in split.words]
        read = read_options(words, findings)
        given.extend(read.given)
        for word in read.rest:
            findings.warning(number, word.text, "not an option: left out")
            break
    return given


HETJOB = (
    "heterogeneous jobs are not run: a job has one shape for all its members; submit the parts"
    " as jobs of their own"
)


@dataclass(frozen=True, slots=True)
class Read:
    """Options, and the words from the first that is none on."""

    given: list[Given]
    rest: list[Word]


def read_options(words: Sequence[Word], findings: Findings) -> Read:
    """Read words as getopt_long does: `--name value`, `--name=value`, `-n4`, `-n 4`, flags in one.

    Stops at the first word that is no option, and after `--`.
    """
    given: list[Given] = []
    left = list(words)
    while left:
        text = left[0].text
        if text == "--":
            return Read(given, left[1:])
        if text.startswith("--"):
            given.extend(_long(left, findings))
        elif text.startswith("-") and len(text) > 1:
            given.extend(_short(left, findings))
        else:
            return Read(given, left)
    return Read(given, [])


def _long(left: list[Word], findings: Findings) -> Iterable[Given]:
    word = left.pop(0)
    name, equals, value = word.text[2:].partition("=")
    found = find_long(name)
    if isinstance(found, tuple):
        _unknown(word, found, left if not equals else [], findings)
        return
    written = word.text
    if name != found.long:
        findings.understood(word.line, written, f"short for --{found.long}")
    if found.takes is Takes.NOTHING:
        if equals:
            findings.error(word.line, written, f"--{found.long} takes no value")
            return
    elif found.takes is Takes.VALUE and not equals:
        if not left:
            findings.error(word.line, written, f"--{found.long} needs a value")
            return
        value = left.pop(0).text
        written = f"{written} {value}"
    yield Given(found, value, word.line, written)


def _unknown(
    word: Word, candidates: tuple[str, ...], left: list[Word], findings: Findings
) -> None:
    written = word.text
    if candidates:
        names = ", ".join(f"--{name}" for name in candidates[:4])
        findings.error(word.line, written, f"may mean {names}: write it out")
    elif not left or left[0].text.startswith("-"):
        findings.warning(word.line, written, "unknown option: left out")
    else:
        written = f"{written} {left.pop(0).text}"
        findings.warning(word.line, written, "unknown option: left out, with the word after it")


def _short(left: list[Word], findings: Findings) -> Iterable[Given]:
    word = left.pop(0)
    letters = word.text[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        option = BY_SHORT.get(letter)
        written = f"-{letter}"
        if option is None:
            findings.warning(word.line, word.text, f"unknown option {written}: left out")
            return
        value = ""
        if option.takes is not Takes.NOTHING:
            value, letters = letters, ""
            if value.startswith("="):
                findings.warning(
                    word.line, word.text,
                    f"a short option takes no `=`: sbatch reads the value as {value!r}",
                )  # fmt: skip
            if not value and option.takes is Takes.VALUE:
                if not left:
                    findings.error(word.line, word.text, f"{written} needs a value")
                    return
                value = left.pop(0).text
                written = f"{written} {value}"
            else:
                written = f"{written}{value}"
        yield Given(option, value, word.line, written)


def last_of_each(given: Iterable[Given], findings: Findings) -> dict[str, Given]:
    """By long name, the one that counts: later ones win, and the command line over the script."""
    chosen: dict[str, Given] = {}
    for one in given:
        before = chosen.get(one.option.long)
        if before is not None:
            by = f"line {one.line}" if one.line else "the command line"
            same = before.value == one.value
            tell = findings.understood if same else findings.ignored
            tell(
                before.line, before.written, f"{by} says {'it again' if same else one.written}"
            )
        chosen[one.option.long] = one
    return chosen
