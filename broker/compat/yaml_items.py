"""YAML as values that know their line. Nothing is constructed but text, numbers, truth and null.

Aliases, merge keys beyond a plain text key, and keys written twice are errors: a file of jobs
needs none of them, and each can be misread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

MAX_BYTES = 1 << 18
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,17}\.?[0-9]{0,17}|\.[0-9]{1,17})(?:[eE][-+]?[0-9]{1,2})?")
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class BadYaml(ValueError):
    """A file that is not the YAML read here: the line, and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


@dataclass(frozen=True, slots=True)
class Item:
    """A value and its line. `value` is text, a number, a truth, None, a list of Items, or a
    mapping of text to Items; `text` is a scalar as written."""

    value: Any
    line: int
    text: str = ""
    quoted: bool = False

    def get(self, *path: str) -> Item | None:
        """The item at a path of keys, or None."""
        place: Item | None = self
        for key in path:
            place = place.value.get(key) if place and isinstance(place.value, dict) else None
        return place

    def items(self) -> Iterator[tuple[str, Item]]:
        """Keys and items of a mapping; none of anything else."""
        yield from self.value.items() if isinstance(self.value, dict) else ()

    def entries(self) -> list[Item]:
        """The entries of a list; none of anything else."""
        return list(self.value) if isinstance(self.value, list) else []

    @property
    def plain(self) -> Any:
        """The value without lines: text, numbers, lists and dictionaries."""
        if isinstance(self.value, dict):
            return {key: item.plain for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain for item in self.value]
        return self.value

    @property
    def scalar(self) -> str | None:
        """A scalar as text, as it was written; None of anything else."""
        if isinstance(self.value, dict | list) or self.value is None:
            return None
        return self.text


def read_yaml(text: str) -> list[Item]:
    """The documents of a file, empty ones left out. Raises BadYaml."""
    if len(text) > MAX_BYTES:
        raise BadYaml(0, "larger than 256 KiB")
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        return [_item(node) for node in nodes if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = " ".join(filter(None, (error.context, error.problem))) or "not YAML"
        raise BadYaml(mark.line + 1 if mark else 0, f"not YAML: {why}") from None
    except yaml.YAMLError as error:
        raise BadYaml(0, f"not YAML: {' '.join(str(error).split())[:200]}") from None
    except (RecursionError, ValueError, IndexError) as error:
        raise BadYaml(0, f"not YAML: {type(error).__name__}") from None


def _item(root: yaml.Node) -> Item:
    seen: set[int] = set()

    def build(node: yaml.Node, depth: int) -> Item:
        line = node.start_mark.line + 1
        if id(node) in seen:
            raise BadYaml(line, "aliases (*name) are not read: write the value out")
        if depth > 64:
            raise BadYaml(line, "too deeply nested")
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node, line)
        if isinstance(node, yaml.SequenceNode):
            return Item([build(child, depth + 1) for child in node.value], line)
        mapping: dict[str, Item] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise BadYaml(key_node.start_mark.line + 1, "a key is a list or a mapping")
            key = str(key_node.value)
            if key in mapping:
                raise BadYaml(
                    key_node.start_mark.line + 1, f"the key {key[:60]!r} stands twice"
                )
            built = build(value_node, depth + 1)
            mapping[key] = Item(
                built.value, key_node.start_mark.line + 1, built.text, built.quoted
            )
        return Item(mapping, line)

    return build(root, 0)


def _scalar(node: yaml.ScalarNode, line: int) -> Item:
    text = str(node.value)
    quoted = node.style in ("'", '"', "|", ">")
    if quoted or node.tag == "tag:yaml.org,2002:str":
        return Item(text, line, text, quoted)
    if node.tag == "tag:yaml.org,2002:null":
        return Item(None, line, text)
    if node.tag == "tag:yaml.org,2002:bool":
        return Item(_TRUTH.get(text.lower(), text), line, text)
    if _INT.fullmatch(text):
        return Item(int(text), line, text)
    if node.tag == "tag:yaml.org,2002:float" and _FLOAT.fullmatch(text):
        return Item(float(text), line, text)
    return Item(text, line, text)
