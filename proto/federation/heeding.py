"""A request to end that something else kept to itself."""

from __future__ import annotations

import asyncio


def heed_cancellation() -> None:
    """Raise CancelledError where this task has been told to end and goes on all the same.

    A stream of grpc.aio that is still being set up takes a cancellation for its own
    (`_prepare_rpc` catches it) and, where the peer has ended the stream meanwhile, says only that:
    a loop that opens the next one then never stops, and whoever cancelled it waits for ever. Loops
    over streams ask this before they go on.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
