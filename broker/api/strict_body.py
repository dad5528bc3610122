"""JSON as it came, or a reason why not: every way a body can be wrong is a 4xx with a remedy."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from broker.api.problems import Problem, field_problem

DEPTH_MAX = 32
_CODE = "malformed_json"
_SUSPECT = re.compile(rb"NaN|Infinity|[0-9][eE]\+?[0-9]{2,}|[0-9]{300,}")
"""Where a number that is not finite may stand: only then is the value searched for it."""


class _Unreadable(ValueError):
    """JSON that is well formed and still not taken."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.path = path
        self.remedy = remedy


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Unreadable(twice[:80], "this key stands twice in its object", "leave one out")
    return found


class _NotFinite:
    """Stands in the value where a number was that JSON does not have; `_find_numbers` names it."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy


def _constant(text: str) -> _NotFinite:
    return _NotFinite(f"{text} is not a JSON number", "write a finite number, or leave the key out")


def _float(text: str) -> float | _NotFinite:
    number = float(text)
    if not math.isfinite(number):
        return _NotFinite(f"the number {text[:40]} is too large", "write a smaller one")
    return number


def _find_numbers(value: Any, path: str = "") -> None:
    """Raise `_Unreadable` with the path of the first number that is none."""
    if isinstance(value, _NotFinite):
        raise _Unreadable(path or "body", value.problem, value.remedy)
    if isinstance(value, dict):
        for key, inner in value.items():
            _find_numbers(inner, f"{path}.{key[:80]}" if path else key[:80])
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _find_numbers(inner, f"{path}[{index}]")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_float
)


def parse_json(data: bytes) -> Any:
    """The value in a request body. Raises Problem 400 naming what is wrong and what is right."""
    try:
        text = data.decode("utf-8")
        # A byte order mark is not JSON, but editors write it.
        value = _DECODER.decode(text.removeprefix("\ufeff"))
        _check_depth(data, value)
        if _SUSPECT.search(data):
            _find_numbers(value)
        if b"\\u" in data:
            _check_surrogates(value)
    except _Unreadable as error:
        raise field_problem(400, _CODE, error.path, str(error), error.remedy) from None
    except UnicodeDecodeError as error:
        problem = f"not UTF-8: byte {error.start} cannot be read"
        raise field_problem(400, _CODE, "body", problem, "send JSON in UTF-8") from None
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        raise field_problem(400, _CODE, "body", problem, "send one JSON value") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        problem = "a number has too many digits"
        raise field_problem(400, _CODE, "body", problem, "write a smaller one") from None
    return value


def _too_deep() -> Problem:
    problem = f"nested more than {DEPTH_MAX} levels deep"
    return field_problem(400, _CODE, "body", problem, "no request needs that; flatten it")


def _check_depth(data: bytes, value: Any) -> None:
    # The parser has a limit of its own; this walk is for what lies between that and ours.
    if data.count(b"[") + data.count(b"{") <= DEPTH_MAX:
        return
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise _too_deep()


def _check_surrogates(value: Any) -> None:
    """Half a surrogate pair is no text: it could neither be stored nor sent on."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.keys())
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError:
                raise _Unreadable(
                    "body", "a \\u escape is half a surrogate pair", "write both halves"
                ) from None
