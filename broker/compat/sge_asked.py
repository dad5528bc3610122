"""The options of one qsub job: the last of each, the command line over the script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from broker.compat import sge_values as values
from broker.compat.notes import Findings
from broker.compat.sge_options import Given

Value = TypeVar("Value")
_SWITCHES = {
    "hard": "what follows is needed",
    "soft": "what follows is only wished for",
    "clear": "what was said before is forgotten",
}


class Asked:
    """The options by name: the last of each, the command line over the script; -l adds up."""

    def __init__(self, given: Sequence[Given], findings: Findings) -> None:
        self.findings = findings
        self.last: dict[str, Given] = {}
        self.resources: dict[str, tuple[str, Given]] = {}
        for one in given:
            if one.option.name in _SWITCHES:
                findings.understood(one.line, one.written, _SWITCHES[one.option.name])
            if one.option.name == "clear":
                self.last.clear()
                self.resources.clear()
            if one.option.name == "l":
                self._resources(one)
                continue
            before = self.last.get(one.option.name)
            if before is not None:
                same = before.values == one.values
                tell = findings.understood if same else findings.ignored
                tell(
                    before.line,
                    before.written,
                    "said again" if same else f"later: {one.written}",
                )
            self.last[one.option.name] = one

    def _resources(self, one: Given) -> None:
        for name, value in values.resources(one.value):
            if one.soft:
                self.findings.ignored(one.line, f"-soft -l {name}={value}", "only a wish")
            else:
                self.resources[name] = (value, one)

    def __contains__(self, name: object) -> bool:
        return name in self.last

    def value(self, name: str) -> str:
        """The value of an option, or empty."""
        return self.last[name].value if name in self.last else ""

    def yes(self, name: str) -> bool:
        """Whether a y/n option says yes."""
        return self.value(name).lower() in ("y", "yes")

    def line(self, name: str) -> int:
        """Where an option stands."""
        return self.last[name].line if name in self.last else 0

    def tell(self, how: Callable[[int, str, str], None], name: str, text: str) -> None:
        """A note about an option."""
        one = self.last[name]
        how(one.line, one.written, text)

    def parsed(self, one: Given, text: str, parse: Callable[[str], Value]) -> Value | None:
        """`text` read by `parse`; None when it is told to be wrong."""
        try:
            return parse(text)
        except values.BadValue as error:
            self.findings.error(one.line, one.written, str(error))
            return None
