"""What is wrong with a job, field by field, in words a person can act on."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

MAX_ERRORS = 50

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60
_short.maxlevel = 2


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault: the path (`resources.memory`, `` for the whole), a short text of the value,
    what is wrong with it, and what would be right."""

    path: str
    value: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        shown = f" (got {self.value})" if self.value else ""
        return f"{place}{self.problem}{shown}; {self.remedy}"


class InvalidJob(ValueError):
    """A job that cannot be accepted, with all its errors."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("\n".join(map(str, errors)))
        self.errors = errors


def explain(error: ValidationError, data: object, model: type[BaseModel]) -> InvalidJob:
    """The faults pydantic found in `data`, told in the words of the format."""
    if not isinstance(data, dict):
        fault = FieldError("", show(data), "a job is a mapping of keys", "write run: echo hello")
        return InvalidJob([fault])
    details = error.errors(include_url=False)
    return InvalidJob([_field_error(detail, model) for detail in details[:MAX_ERRORS]])


def show(value: object) -> str:
    """A short text of any value, however large, deep or odd."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "an enormous integer"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    try:
        return _short.repr(value)[:120]
    except ValueError:  # an integer too long to print, inside a list
        return type(value).__name__


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":
            path += f".{part}" if path else part
    return path[:200]


def _field_error(detail: ErrorDetails, model: type[BaseModel]) -> FieldError:
    location, kind = detail["loc"], detail["type"]
    if kind == "extra_forbidden":
        return _unknown_key(location, model)
    context = detail.get("ctx", {})
    value = "" if isinstance(detail["input"], dict | list) else show(detail["input"])
    if kind == "refused":
        return FieldError(_path(location), value, context["problem"], context["remedy"])
    return FieldError(_path(location), value, detail["msg"], _remedy(kind, context))


def _remedy(kind: str, context: dict[str, Any]) -> str:
    if kind == "literal_error":
        return f"use one of {context.get('expected', 'the listed words')}"
    for prefix, remedy in _REMEDIES:
        if kind.startswith(prefix):
            return remedy
    return "see docs/job-spec.md"


_REMEDIES = (
    ("string_unicode", "use valid Unicode text"),
    ("string", "write text, in quotes if it looks like a number, a date or yes and no"),
    ("int", "write a whole number"),
    ("float", "write a number"),
    ("finite", "write a finite number"),
    ("bool", "write true or false"),
    ("greater", "raise it"),
    ("less", "lower it"),
    ("too_long", "use fewer"),
    ("tuple", "write a list"),
    ("dict", "write a mapping of keys to values"),
    ("model", "write a mapping of keys to values"),
    ("invalid_key", "keys are text"),
)


def _unknown_key(location: tuple[int | str, ...], model: type[BaseModel]) -> FieldError:
    key = str(location[-1])[:60]
    known = _keys_at(model, location[:-1])
    near = get_close_matches(key, known, n=1, cutoff=0.6)
    remedy = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(sorted(known))}"
    return FieldError(_path(location), "", f"unknown key `{key}`", remedy)


def _keys_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    current = model
    for part in location:
        if isinstance(part, int):
            continue
        for name, field in current.model_fields.items():
            if part in (name, field.alias):
                current = _model_in(field.annotation) or current
    return [field.alias or name for name, field in current.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
