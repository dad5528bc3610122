"""The options of one sbatch job, read one by one, each with a word on what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from broker.compat import slurm_values as values
from broker.compat.notes import Findings
from broker.compat.slurm_directives import Given

Value = TypeVar("Value")


class Asked:
    """The options that count, read one by one; a value that cannot be used is told once."""

    def __init__(self, given: Mapping[str, Given], findings: Findings) -> None:
        self.given = given
        self.findings = findings

    def __contains__(self, name: object) -> bool:
        return name in self.given

    def line(self, name: str) -> int:
        """Where it stands; 0 = command line."""
        return self.given[name].line if name in self.given else 0

    def written(self, name: str) -> str:
        """As it stands there."""
        return self.given[name].written if name in self.given else f"--{name}"

    def read(self, name: str, parse: Callable[[str], Value]) -> Value | None:
        """The value of an option, or None if it is not given or was told to be wrong."""
        one = self.given.get(name)
        if one is None:
            return None
        try:
            return parse(one.value)
        except values.BadValue as error:
            self.error(name, f"{error}")
            return None

    def number(self, name: str) -> int | None:
        """The same, of a whole number from 1 on."""
        return self.read(name, values.count)

    def error(self, name: str, why: str) -> None:
        """Tell that an option cannot be honoured."""
        self.findings.error(self.line(name), self.written(name), why)

    def warning(self, name: str, why: str) -> None:
        """Tell that an option does less here."""
        self.findings.warning(self.line(name), self.written(name), why)

    def understood(self, name: str, text: str) -> None:
        """Tell what was understood."""
        self.findings.understood(self.line(name), self.written(name), text)

    def translated(self, name: str, text: str) -> None:
        """Tell what was made of it."""
        self.findings.translated(self.line(name), self.written(name), text)

    def ignored(self, name: str, why: str) -> None:
        """Tell that it has no effect."""
        self.findings.ignored(self.line(name), self.written(name), why)
