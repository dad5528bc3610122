"""Strict reading of JSON: every error names the path of the value, and unknown keys get a
suggestion. Nothing here knows about planning problems."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

LARGEST = 2**53
"""Numbers beyond this are refused: a double no longer holds every integer there."""

T = TypeVar("T")
Reader = Callable[[Any, str], T]
"""Turns a JSON value at a path into a value of ours, or raises `ProblemError`."""


class ProblemError(ValueError):
    """A bad problem: `path` says where ("$" = the whole document), `reason` what and the
    remedy."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Key:
    """One key an object may have: how it is read, and its value when absent."""

    read: Reader[Any]
    default: Any = None
    required: bool = False


class _Object(dict[str, Any]):
    """A JSON object that remembers a key given twice."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: str | None = None
        if len(self) != len(pairs):
            names = [name for name, _ in pairs]
            self.repeated = next(name for name in names if names.count(name) > 1)


def loads(data: bytes | str) -> Any:
    """Parse JSON. Non-finite numbers and repeated keys are kept for the readers to refuse with
    their path. Raises `ProblemError` for what is not JSON in UTF-8."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_Object)
    except UnicodeDecodeError as error:
        raise ProblemError("$", f"not UTF-8: byte {error.start} cannot be read") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise ProblemError("$", f"not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise ProblemError("$", "not a planning problem: nested too deeply") from None
    except ValueError:
        raise ProblemError("$", "a number has too many digits") from None


def at(path: str, key: str) -> str:
    """The path of a key below a path."""
    return key if path == "$" else f"{path}.{key}"


def did_you_mean(word: str, known: list[str]) -> str:
    """ "; did you mean ...?" for the closest known word, or the known ones if there are few."""
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f'; did you mean "{close[0]}"?'
    if 0 < len(known) <= 12:
        return "; known: " + ", ".join(known)
    return ""


def shown(value: Any) -> str:
    """A JSON value for an error text, cut short."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def as_object(value: Any, path: str) -> dict[str, Any]:
    """An object without repeated keys."""
    if not isinstance(value, dict):
        raise ProblemError(path, f"must be an object, not {shown(value)}")
    repeated = getattr(value, "repeated", None)
    if repeated is not None:
        raise ProblemError(at(path, repeated), "this key is given twice in its object")
    return value


def read_keys(value: Any, path: str, keys: Mapping[str, Key]) -> dict[str, Any]:
    """Read an object with exactly these keys; absent ones get their default. A null counts as
    absent where the default is None. Raises `ProblemError` for unknown and missing keys."""
    given = as_object(value, path)
    for name in given:
        if name not in keys:
            hint = did_you_mean(name, list(keys))
            raise ProblemError(at(path, name), f"unknown key{hint}")
    read: dict[str, Any] = {}
    for name, key in keys.items():
        found = given.get(name)
        if found is None and (name not in given or (key.default is None and not key.required)):
            if key.required:
                raise ProblemError(at(path, name), "this key is missing")
            read[name] = key.default
        else:
            read[name] = key.read(found, at(path, name))
    return read


def text(value: Any, path: str) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        raise ProblemError(path, f"must be a string that is not empty, not {shown(value)}")
    return value


def truth(value: Any, path: str) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise ProblemError(path, f"must be true or false, not {shown(value)}")
    return value


def _check_number(value: Any, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProblemError(path, f"must be a number, not {shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ProblemError(path, "must be a finite number")
    if value < 0:
        raise ProblemError(path, f"must not be negative, but is {shown(value)}")
    if value > LARGEST:
        raise ProblemError(path, "must be at most 2^53 (9007199254740992)")


def amount(value: Any, path: str) -> float:
    """A finite number, at least 0."""
    _check_number(value, path)
    return float(value)


def positive(value: Any, path: str) -> float:
    """A finite number over 0."""
    number = amount(value, path)
    if number == 0:
        raise ProblemError(path, "must be greater than 0")
    return number


def whole(value: Any, path: str) -> int:
    """An integer, at least 0."""
    _check_number(value, path)
    if value != int(value):
        raise ProblemError(path, f"must be an integer, but is {shown(value)}")
    return int(value)


def size(value: Any, path: str) -> int:
    """An integer, at least 1."""
    number = whole(value, path)
    if number < 1:
        raise ProblemError(path, "must be at least 1")
    return number


def listed(read: Reader[T]) -> Reader[tuple[T, ...]]:
    """A list whose items are read with `read`."""

    def reader(value: Any, path: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ProblemError(path, f"must be a list, not {shown(value)}")
        return tuple(read(item, f"{path}[{index}]") for index, item in enumerate(value))

    return reader


def mapped(read: Reader[T]) -> Reader[dict[str, T]]:
    """An object with any keys whose values are read with `read`."""

    def reader(value: Any, path: str) -> dict[str, T]:
        given = as_object(value, path)
        return {name: read(item, f'{path}["{name}"]') for name, item in given.items()}

    return reader


def mapped_by_integer(read: Reader[T]) -> Reader[dict[int, T]]:
    """An object whose keys are integers in their usual decimal form."""

    def reader(value: Any, path: str) -> dict[int, T]:
        read_items: dict[int, T] = {}
        for name, item in as_object(value, path).items():
            if not (name.isascii() and name.isdigit() and len(name) <= 16):
                raise ProblemError(f'{path}["{name}"]', "the key must be an integer from 0")
            if str(int(name)) != name:
                raise ProblemError(f'{path}["{name}"]', f'write this key as "{int(name)}"')
            read_items[int(name)] = read(item, f'{path}["{name}"]')
        return read_items

    return reader
