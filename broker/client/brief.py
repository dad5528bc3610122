"""One question and its whole answer by the standard library, a connection each.

For commands that ask once or twice: loading a whole HTTP client costs more than they do. No proxy,
no streams; those are `streams`.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

from broker.client.replies import Answer, Distrusted, Lost

Target: TypeAlias = tuple[str, str, Mapping[str, str], bytes | None]
"""Method, path with its query, headers, body."""


class _Headers(Mapping[str, str]):
    """Headers by name, whatever its case."""

    def __init__(self, message: http.client.HTTPMessage) -> None:
        self._message = message

    def __getitem__(self, name: str) -> str:
        found = self._message[name]
        if found is None:
            raise KeyError(name)
        return str(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._message.keys())

    def __len__(self) -> int:
        return len(self._message.keys())


@dataclass(frozen=True, slots=True)
class Brief:
    """Questions to one broker; `tls` None for plain HTTP."""

    url: str
    tls: ssl.SSLContext | None
    connect_s: float
    read_s: float

    async def ask(self, target: Target) -> Answer:
        """The answer, whatever its status. Raises Lost, Distrusted."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        connection, found = self._connection(), list[Answer | Lost | Distrusted]()

        def work() -> None:
            found.append(self._asked(connection, target))
            with contextlib.suppress(RuntimeError):  # nobody waits any more
                loop.call_soon_threadsafe(done.set)

        # Not one of the loop's own threads: for these a Ctrl-C would wait until they are done.
        threading.Thread(target=work, daemon=True).start()
        await done.wait()
        (answer,) = found
        if isinstance(answer, Answer):
            return answer
        raise answer

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if self.tls is None:
            return http.client.HTTPConnection(host, parts.port, timeout=self.connect_s)
        return http.client.HTTPSConnection(
            host, parts.port, timeout=self.connect_s, context=self.tls
        )

    def _asked(
        self, connection: http.client.HTTPConnection, target: Target
    ) -> Answer | Lost | Distrusted:
        """In a thread. `Lost.sent`: whether the broker may have heard it."""
        method, path, headers, body = target
        sent = False
        try:
            connection.connect()
            sock: socket.socket = connection.sock
            sock.settimeout(self.read_s)
            sent = True
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            content = response.read()
            return Answer(response.status, _Headers(response.headers), content, response.reason)
        except ssl.SSLCertVerificationError as error:
            return Distrusted(error.verify_message or str(error))
        except TimeoutError:
            return Lost("no answer in time", sent=sent)
        except http.client.RemoteDisconnected:
            return Lost("it closed the connection", sent=sent)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return Lost(reason, sent=sent)
        finally:
            connection.close()
