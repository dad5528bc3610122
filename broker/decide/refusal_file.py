"""Refusals in the public JSON form (docs/planning-problem.md): why a place is closed."""

from __future__ import annotations

from typing import Any

from broker.decide.strict_json import Key, ProblemError, did_you_mean, read_keys, shown, text
from federation.refusals import Refusal, RefusalCode


def _code(value: Any, path: str) -> RefusalCode:
    known = [code.value for code in RefusalCode]
    if value not in known:
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        raise ProblemError(path, f"must be a refusal code, not {shown(value)}{hint}")
    return RefusalCode(value)


REFUSAL_KEYS = {
    "code": Key(_code, required=True),
    "subject": Key(text, ""),
    "needed": Key(text, ""),
    "available": Key(text, ""),
    "advice": Key(text, ""),
}


def read_refusal(value: Any, path: str) -> Refusal:
    """A reason. Raises `ProblemError`."""
    return Refusal(**read_keys(value, path, REFUSAL_KEYS))


def refusal_to_json(refusal: Refusal) -> dict[str, Any]:
    """A reason as it is read again; what is empty is left out."""
    found = {name: getattr(refusal, name) for name in REFUSAL_KEYS if name != "code"}
    return {"code": refusal.code.value, **{name: told for name, told in found.items() if told}}
