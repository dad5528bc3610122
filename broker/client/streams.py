"""Requests over kept connections, with bodies that arrive bit by bit, by a proxy if need be."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import IO

import aiohttp

from broker.client.errors import Problem
from broker.client.replies import Answer, Distrusted, Lost, problem_in

MAX_ERROR_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose body has yet to be read."""

    response: aiohttp.ClientResponse

    @property
    def status(self) -> int:
        """See `Reply`."""
        return self.response.status

    async def problem(self) -> Problem:
        """See `Reply`. The connection is done with then."""
        body, response = b"", self.response
        try:
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_ERROR_BYTES:
                    break
        except (aiohttp.ClientError, TimeoutError):
            body = b""
        response.close()
        return problem_in(Answer(response.status, response.headers, body, response.reason or ""))


class Streams:
    """A session with one broker; made and used within one event loop."""

    def __init__(
        self,
        tls: ssl.SSLContext | None,
        headers: Mapping[str, str],
        connect_s: float,
        *,
        through_proxy: bool,
    ) -> None:
        """`through_proxy`: where the environment names one."""
        self._connect_s = connect_s
        connector = aiohttp.TCPConnector(ssl=True if tls is None else tls, limit=16)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=headers, trust_env=through_proxy
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def ask(
        self,
        line: tuple[str, str],
        headers: Mapping[str, str],
        body: bytes | IO[bytes] | None,
        read_s: float,
    ) -> Stream:
        """The beginning of an answer, whatever its status; `line` is the method and the whole URL.
        Raises Lost, Distrusted."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._connect_s, sock_read=read_s
        )
        try:
            response = await self._session.request(
                *line, data=body, headers=headers, timeout=timeout, allow_redirects=False
            )
        except aiohttp.ClientConnectorCertificateError as error:
            inner = error.certificate_error
            raise Distrusted(getattr(inner, "verify_message", "") or str(inner)) from None
        except aiohttp.ClientConnectorError as error:
            raise Lost(_reason(error), sent=False) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Lost(_reason(error), sent=True) from None
        return Stream(response)


async def chunks_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises Lost."""
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Lost(_reason(error), sent=True) from None


async def whole(response: aiohttp.ClientResponse) -> bytes:
    """The whole body. Raises Lost."""
    try:
        return await response.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Lost(_reason(error), sent=True) from None


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
        return inner.strerror or str(inner) or type(inner).__name__
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection"
    return str(error) or type(error).__name__
