"""Long loops in steps, so that the event loop turns in between: sessions, API and beats go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

Item = TypeVar("Item")

STEP = 50
"""Items between two turns of the event loop; for what takes some 0.1 ms an item."""


async def in_steps(items: Iterable[Item], step: int = STEP) -> AsyncIterator[Item]:
    """The items, with a turn of the event loop after every `step` of them."""
    left = step
    for item in items:
        if not left:
            left = step
            await asyncio.sleep(0)
        left -= 1
        yield item
