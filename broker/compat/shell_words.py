"""A reading of shell scripts good enough to see which commands they run, and with which words.

No shell is run. Quotes, continued lines, comments, here documents and `$( )` are followed; what a
script computes is not known, so whoever asks must take a variable for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from broker.compat.words import names

_HEREDOC = re.compile(r"<<(-?)\s*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([A-Za-z0-9_.!+-]+))")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^]]*\])?\+?=")
_KEYWORDS = names(
    "if then elif else fi for while until do done case esac in select function { } ! [[ ]]"
)
_FUNCTION = re.compile(r"^[ \t]*(?:function[ \t]+[\w-]+|[\w-]+[ \t]*\(\))", re.MULTILINE)
_PREFIXES = names("time exec command nohup builtin eval")
_MAX_DEPTH = 4


@dataclass(slots=True)
class Command:
    """One simple command: its words, what it sets, where its output goes."""

    line: int
    words: list[str] = field(default_factory=list)
    sets: list[tuple[str, str]] = field(default_factory=list)
    redirects: list[str] = field(default_factory=list)
    piped: bool = False
    background: bool = False
    in_heredoc: bool = False

    @property
    def name(self) -> str:
        """The program or builtin, without its directory; empty for an assignment."""
        return self.words[0].rpartition("/")[2] if self.words else ""


@dataclass(slots=True)
class Shell:
    """What was seen of a script: its commands in order, and whether it has structure."""

    commands: list[Command] = field(default_factory=list)
    keywords: dict[str, int] = field(default_factory=dict)
    functions: bool = False
    heredocs: int = 0


def read_shell(text: str, first_line: int = 1, depth: int = 0) -> Shell:
    """The commands of a script; never raises, whatever the text."""
    shell = Shell(functions=_FUNCTION.search(text) is not None)
    reader = _Reader(text, first_line)
    for command in reader.commands():
        _take(command, shell)
    for line, body in reader.bodies:
        shell.heredocs += 1
        if depth < _MAX_DEPTH:
            inner = read_shell(body, line, depth + 1)
            for command in inner.commands:
                command.in_heredoc = True
            shell.commands.extend(inner.commands)
    return shell


def _take(command: Command, shell: Shell) -> None:
    """Part keywords, assignments and prefixes from the command proper."""
    words = command.words
    while words:
        if words[0] in _KEYWORDS:
            shell.keywords.setdefault(words[0], command.line)
            words.pop(0)
        elif match := _ASSIGNMENT.match(words[0]):
            command.sets.append((match[1], words.pop(0)[match.end() :]))
        elif words[0] in _PREFIXES and len(words) > 1:
            words.pop(0)
        else:
            break
    if words or command.sets:
        shell.commands.append(command)


class _Reader:
    """Characters to commands. A stack remembers the quote around each open `$(`."""

    def __init__(self, text: str, first_line: int) -> None:
        self._text = text
        self._at = 0
        self._line = first_line
        self._quote = ""
        self._around: list[str] = []
        self._word: list[str] | None = None
        self._command = Command(first_line)
        self._done: list[Command] = []
        self._redirect = False
        self._pending: list[tuple[str, bool]] = []
        self.bodies: list[tuple[int, str]] = []

    def commands(self) -> Iterator[Command]:
        while self._at < len(self._text):
            self._step()
            yield from self._done
            self._done.clear()
        self._end_command()
        yield from self._done

    def _step(self) -> None:
        character = self._text[self._at]
        self._at += 1
        if character == "\n":
            self._line += 1
        if character == "\\" and self._quote != "'":
            self._escape()
        elif self._quote == "'":
            self._quoted(character)
        elif character in "$`" and self._opens(character):
            self._enter(character)
        elif self._quote == '"':
            self._quoted(character)
        else:
            self._plain(character)

    def _escape(self) -> None:
        following = self._text[self._at : self._at + 1]
        self._at += 1
        if following == "\n":
            self._line += 1
        elif following:
            self._add(following)

    def _quoted(self, character: str) -> None:
        if character == self._quote:
            self._quote = ""
        else:
            self._add(character)

    def _opens(self, character: str) -> bool:
        return character == "`" or (
            self._text.startswith("(", self._at) and not self._text.startswith("((", self._at)
        )

    def _enter(self, character: str) -> None:
        """Begin the command inside `$( )` or backquotes; the word it stands in ends there."""
        if character == "`" and self._around and self._around[-1] == "`":
            self._end_command()
            self._around.pop()
            return
        if character == "$":
            self._at += 1
        self._add("$(")
        self._end_word()
        self._end_command()
        self._around.append("`" if character == "`" else self._quote)
        self._quote = ""

    def _plain(self, character: str) -> None:
        if character in "\"'":
            self._quote = character
            self._word = [] if self._word is None else self._word
        elif character == "#" and self._word is None:
            self._skip_comment()
        elif character in " \t\r":
            self._end_word()
        elif character == "\n":
            self._end_command()
            self._read_bodies()
        elif character in ";|&()":
            self._operator(character)
        elif character in "<>":
            self._redirection(character)
        else:
            self._add(character)

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _operator(self, character: str) -> None:
        previous = self._text[self._at - 2 : self._at - 1]
        if character == "&" and (
            previous in ("<", ">") or self._text.startswith(">", self._at)
        ):
            self._add(character)  # 2>&1, &>file
            return
        self._end_word()
        if character == "|":
            piped = not self._text.startswith("|", self._at) and previous != "|"
            self._end_command()
            self._command.piped = piped
            return
        if character == "&" and previous != "&" and not self._text.startswith("&", self._at):
            self._command.background = True
        self._end_command()
        if character == ")" and self._around:
            self._quote = self._around.pop().replace("`", "")

    def _redirection(self, character: str) -> None:
        match = _HEREDOC.match(self._text, self._at - 1) if character == "<" else None
        if match and not self._text.startswith("<<<", self._at - 1):
            self._end_word()
            self._pending.append((match[2] or match[3] or match[4], bool(match[1])))
            self._at = match.end()
            return
        if self._word and "".join(self._word).isdigit():
            self._word = None
        self._end_word()
        while self._text.startswith((">", "<"), self._at):
            self._at += 1
        self._redirect = character == ">"

    def _read_bodies(self) -> None:
        for delimiter, strips in self._pending:
            begin, line, body = self._at, self._line, []
            while begin < len(self._text):
                end = self._text.find("\n", begin)
                end = len(self._text) if end < 0 else end
                row = self._text[begin:end]
                begin = end + 1
                self._line += 1
                if (row.lstrip("\t") if strips else row) == delimiter:
                    break
                body.append(row)
            self._at = min(begin, len(self._text))
            self.bodies.append((line, "\n".join(body)))
        self._pending.clear()

    def _add(self, text: str) -> None:
        if self._word is None:
            self._word = []
            if not self._command.words:
                self._command.line = self._line
        self._word.append(text)

    def _end_word(self) -> None:
        if self._word is None:
            return
        word = "".join(self._word)
        self._word = None
        if self._redirect:
            self._command.redirects.append(word)
            self._redirect = False
        else:
            self._command.words.append(word)

    def _end_command(self) -> None:
        self._end_word()
        if self._command.words:
            self._done.append(self._command)
        self._command = Command(self._line)
