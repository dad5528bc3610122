"""Answers of the API as dictionaries, and names as parts of a path."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from broker.client.errors import Garbled
from broker.client.replies import Answer

MAX_BLOB_BYTES = 64 << 20
"""What a broker takes as one blob."""
Document = dict[str, Any]


def part(text: str) -> str:
    """A name as one part of a path; `.` and `..` would be resolved away before the request
    leaves."""
    return quote(text, safe="") if text.strip(".") else "-"


def mapping(answer: Answer) -> Document:
    """The object an answer carries; empty for no body. Raises Garbled."""
    if not answer.body:
        return {}
    document = answer.document()
    if not isinstance(document, dict):
        raise Garbled("the answer is not a JSON object")
    return document


def mappings(value: object) -> list[Document]:
    """The objects in a JSON list, or nothing."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
