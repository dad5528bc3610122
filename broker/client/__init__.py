"""The Python client of the API. Knows the vocabulary only; no gRPC, no solver.

    async with connect(Connection("https://broker.example.org", token)) as client:
        submitted = await client.submit({"run": "python train.py"})
        ended = await wait_for_jobs(client, [submitted.id])

Names are looked up when they are first used: a command that asks one question does not pay for
reading jobs or packing directories.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

__all__ = [
    "BadConfiguration", "BadFile", "Client", "ClientError", "Connection", "Garbled", "LogChoice",
    "LogEnd", "LogPiece", "LogRange", "LogWaiting", "NotConfigured", "NotReachable", "Patience",
    "Prepared", "Problem", "Refused", "Submitted", "TimedOut", "Transport", "all_jobs", "connect",
    "find_connection", "follow_log", "has_ended", "prepare_job", "wait_for_jobs",
]  # fmt: skip

_HOMES = {
    "client": ("Client", "LogRange", "Submitted", "all_jobs"),
    "configuration": ("Connection", "find_connection"),
    "errors": (
        "BadConfiguration", "BadFile", "ClientError", "Garbled", "NotConfigured", "NotReachable",
        "Problem", "Refused", "TimedOut",
    ),
    "following": (
        "LogChoice", "LogEnd", "LogPiece", "LogWaiting", "follow_log", "has_ended",
        "wait_for_jobs",
    ),
    "transport": ("Patience", "Transport"),
    "upload": ("Prepared", "prepare_job"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def connect(
    connection: Connection,
    patience: Patience | None = None,
    notify: Callable[[str], None] | None = None,
    *,
    brief: bool = False,
) -> Client:
    """A client of that broker, to be used in `async with`; nothing is sent before that.

    `notify` is told, in one line, when an answer is waited for longer than usual. `brief`: few
    questions will be asked, and no proxy is in the way: each has a connection of its own, and what
    keeps connections is loaded only for a stream. Find the user's own connection with
    `find_connection(os.environ, Path.home())`.
    """
    from broker.client.client import Client
    from broker.client.transport import Transport
    from federation.system import SystemIds, SystemRng

    return Client(Transport(connection, SystemRng(), patience, notify, brief=brief), SystemIds())
