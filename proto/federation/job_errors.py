"""What is wrong with a job, field by field, in words a person can act on."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from federation.job_fields import printable

MAX_ERRORS = 50

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60
_short.maxlevel = 2


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault: the path (`resources.memory`, empty for the whole), a short text of the value
    (may be empty), what is wrong with it, and what would be right."""

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
        return InvalidJob(
            [_fault((), show(data), "a job is a mapping of keys", "write run: echo hello")]
        )
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
    for part in location[:20]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":
            path += f".{part}" if path else part
    return path[:200]


def _fault(location: tuple[int | str, ...], value: str, problem: str, remedy: str) -> FieldError:
    return FieldError(
        printable(_path(location)), printable(value), printable(problem), printable(remedy)
    )


def _field_error(detail: ErrorDetails, model: type[BaseModel]) -> FieldError:
    location, kind = detail["loc"], detail["type"]
    if kind == "extra_forbidden":
        return _unknown_key(location, model)
    context = detail.get("ctx", {})
    value = "" if isinstance(detail["input"], dict | list) else show(detail["input"])
    if kind == "refused":
        return _fault(location, value, context["problem"], context["remedy"])
    problem, remedy = _WORDS.get(kind, (detail["msg"], "see docs/job-spec.md"))
    return _fault(location, value, problem.format(**context), remedy.format(**context))


_WORDS = {
    "bool_type": ("not true or false", "write true or false"),
    "dict_type": ("not a mapping", "write a mapping of keys to values"),
    "finite_number": ("not a finite number", "write a number"),
    "float_type": ("not a number", "write a number"),
    "greater_than": ("too small", "write more than {gt}"),
    "greater_than_equal": ("too small", "write {ge} or more"),
    "int_type": ("not a whole number", "write a whole number"),
    "invalid_key": ("a key that is not text", "put it in quotes"),
    "less_than_equal": ("too large", "write {le} or less"),
    "literal_error": ("not a word known here", "use one of {expected}"),
    "missing": ("missing", "add it"),
    "model_type": ("not a mapping", "write a mapping of keys to values"),
    "string_too_long": ("too long", "use at most {max_length} characters"),
    "string_too_short": ("empty", "write something, or leave the key out"),
    "string_type": ("not text", "put it in quotes"),
    "string_unicode": ("not valid Unicode", "use valid Unicode text"),
    "too_long": ("too many entries", "use at most {max_length}"),
    "tuple_type": ("not a list", "write a list"),
}


def _unknown_key(location: tuple[int | str, ...], model: type[BaseModel]) -> FieldError:
    key = str(location[-1])[:60]
    known = _keys_at(model, location[:-1])
    near = get_close_matches(key, known, n=1, cutoff=0.6)
    remedy = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(sorted(known))}"
    return _fault(location, "", f"unknown key `{key}`", remedy)


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
