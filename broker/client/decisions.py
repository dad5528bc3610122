"""What the client asks about decisions: stored ones, what they gained, and what if."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from broker.client.client import Client
from broker.client.errors import Garbled
from broker.client.replies import Answer
from broker.client.transport import Request

Document = dict[str, Any]


async def stored_cycles(client: Client, limit: int) -> Document:
    """Stored decisions, the newest first: {cycles, kept, size_bytes}. For operators."""
    return _object(await client.transport.send(Request("GET", "/cycles", {"limit": str(limit)})))


async def stored_problem(client: Client, cycle: str) -> bytes:
    """The planning problem of a stored decision, as JSON text. For operators."""
    request = Request("GET", f"/cycles/{quote(cycle, safe='')}")
    return (await client.transport.send(request)).body


async def decision_stats(client: Client, days: int) -> Document:
    """What decisions gained and how predictions came true, by day."""
    request = Request("GET", "/decide/stats", {"days": str(days)})
    return _object(await client.transport.send(request))


async def what_if(client: Client, changes: Document) -> Document:
    """Today beside a changed world; nothing is stored."""
    return _object(
        await client.transport.send(Request("POST", "/whatif", document=changes, repeatable=True))
    )


def _object(answer: Answer) -> Document:
    document = answer.document()
    if not isinstance(document, dict):
        raise Garbled("the answer is not a JSON object")
    return document
