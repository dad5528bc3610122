"""The Python client of the API. Knows the vocabulary only; no gRPC, no solver.

    async with connect(Connection("https://broker.example.org", token)) as client:
        submitted = await client.submit({"run": "python train.py"})
        ended = await wait_for_jobs(client, [submitted.id])
"""

from __future__ import annotations

from collections.abc import Callable

from broker.client.client import Client, LogRange, Submitted, all_jobs
from broker.client.configuration import Connection, find_connection
from broker.client.errors import (
    BadConfiguration,
    BadFile,
    ClientError,
    Garbled,
    NotConfigured,
    NotReachable,
    Problem,
    Refused,
    TimedOut,
)
from broker.client.following import (
    LogChoice,
    LogEnd,
    LogPiece,
    LogWaiting,
    follow_log,
    has_ended,
    wait_for_jobs,
)
from broker.client.transport import Patience, Transport
from broker.client.upload import Prepared, prepare_job
from federation.system import SystemIds, SystemRng

__all__ = [
    "BadConfiguration", "BadFile", "Client", "ClientError", "Connection", "Garbled", "LogChoice",
    "LogEnd", "LogPiece", "LogRange", "LogWaiting", "NotConfigured", "NotReachable", "Patience",
    "Prepared", "Problem", "Refused", "Submitted", "TimedOut", "all_jobs", "connect",
    "find_connection", "follow_log", "has_ended", "prepare_job", "wait_for_jobs",
]  # fmt: skip


def connect(
    connection: Connection,
    patience: Patience | None = None,
    notify: Callable[[str], None] | None = None,
) -> Client:
    """A client of that broker, to be used in `async with`; nothing is sent before that.

    `notify` is told, in one line, when an answer is waited for longer than usual. Find the user's
    own connection with `find_connection(os.environ, Path.home())`.
    """
    return Client(Transport(connection, SystemRng(), patience, notify), SystemIds())
