"""HTTP to the broker: TLS pinned to its CA, patience, and errors in one line.

Only what is safe to repeat is repeated: reads, uploads named by their hash, intents that say the
same thing twice, and creations that carry an Idempotency-Key. A request that never left (no
connection) is always repeated.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import IO, Any
from urllib.parse import urlsplit

import aiohttp

from broker.client.configuration import LOOPBACK, Connection
from broker.client.errors import (
    BadConfiguration,
    Fault,
    Garbled,
    NotReachable,
    Problem,
    Refused,
)
from federation.environment import Rng

MAX_ERROR_BYTES = 1 << 20
BUSY = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one request is tried, and the pauses between (seconds)."""

    total_s: float = 12.0
    first_pause_s: float = 0.2
    longest_pause_s: float = 3.0
    connect_s: float = 8.0
    read_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request below /v1 (or from the root, where `path` starts with `//`)."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    document: object = None
    open_body: Callable[[], bytes | IO[bytes]] | None = None
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: status, headers, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> Any:
        """The JSON of the body; raises Garbled."""
        try:
            # NaN and Infinity are not JSON: read as unknown rather than passed on.
            return json.loads(self.body, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            raise Garbled(
                "the answer is not JSON", "check that the URL is that of a Tradewind broker"
            ) from None


class Transport:
    """Requests to one broker. Use as an async context manager; not safe across event loops."""

    def __init__(
        self,
        connection: Connection,
        rng: Rng,
        patience: Patience | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self.connection = connection
        self.patience = patience or Patience()
        self._rng = rng
        self._notify = notify or (lambda text: None)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Transport:
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self.patience.connect_s, sock_read=self.patience.read_s
        )
        connector = aiohttp.TCPConnector(ssl=tls_context(self.connection), limit=16)
        headers = {"User-Agent": "tradewind-client", "Accept": "application/json"}
        if self.connection.token:
            headers["Authorization"] = f"Bearer {self.connection.token}"
        # A proxy named in the environment is used, but never for a broker on this machine.
        on_loopback = urlsplit(self.connection.url).hostname in LOOPBACK
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=headers, trust_env=not on_loopback
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, request: Request) -> Answer:
        """The whole answer, if it is 2xx or 3xx. Raises Refused, NotReachable, Garbled."""
        async with self.open(request) as response:
            try:
                body = await response.read()
            except (aiohttp.ClientError, TimeoutError) as error:
                raise self._broken(error) from None
            return Answer(response.status, response.headers, body)

    @asynccontextmanager
    async def open(
        self, request: Request, *, read_s: float | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer, its body yet to be read. Raises Refused, NotReachable, Garbled."""
        response = await self._patiently(request, read_s)
        try:
            yield response
        finally:
            response.close()

    async def chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The body as it arrives; raises NotReachable when the connection breaks."""
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._broken(error) from None

    async def _patiently(
        self, request: Request, read_s: float | None
    ) -> aiohttp.ClientResponse:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.patience.total_s
        pause_s = self.patience.first_pause_s
        while True:
            response, problem, failure = await self._once(request, read_s)
            if response is not None:
                return response
            wanted_s = problem.retry_after_s if problem else None
            wait_s = wanted_s if wanted_s is not None else pause_s * self._rng.uniform(0.5, 1.0)
            if loop.time() + wait_s > give_up_at:
                raise failure
            if wait_s >= 1.0:
                self._notify(f"{failure.text}; trying again")
            await asyncio.sleep(wait_s)
            pause_s = min(pause_s * 2, self.patience.longest_pause_s)

    async def _once(
        self, request: Request, read_s: float | None
    ) -> tuple[aiohttp.ClientResponse | None, Problem | None, NotReachable]:
        """One try: an answer, or why it may be tried again. Raises what is final."""
        try:
            response = await self._request(request, read_s)
        except aiohttp.ClientConnectorCertificateError as error:
            raise self._distrusted(error) from None
        except aiohttp.ClientConnectorError as error:
            return None, None, self._broken(error)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not request.repeatable:
                raise self._unsure(error) from None
            return None, None, self._broken(error)
        if response.status < 400:
            return response, None, NotReachable("")
        problem = await read_problem(response)
        response.close()
        if problem.status in BUSY and (request.repeatable or problem.status in (429, 503)):
            return None, problem, NotReachable(
                f"the broker cannot answer now: {problem.line}", "try again in a moment"
            )
        raise Refused(problem)

    async def _request(
        self, request: Request, read_s: float | None
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the transport is used outside its async with")
        root = request.path.startswith("//")
        path = request.path[1:] if root else f"/v1{request.path}"
        body: Any = request.open_body() if request.open_body else None
        headers = dict(request.headers)
        if request.document is not None:
            body = json.dumps(request.document, ensure_ascii=False, allow_nan=False).encode(
                "utf-8", "surrogatepass"
            )
            headers["Content-Type"] = "application/json"
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=self.patience.connect_s,
            sock_read=read_s if read_s is not None else self.patience.read_s,
        )
        return await self._session.request(
            request.method,
            f"{self.connection.url}{path}",
            params=dict(request.query),
            data=body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        )

    def _broken(self, error: BaseException) -> NotReachable:
        reason = _reason(error)
        return NotReachable(
            f"the broker at {self.connection.url} cannot be reached: {reason}",
            "run `tradewind doctor`, or `tradewind up` for a federation on this machine",
        )

    def _unsure(self, error: BaseException) -> NotReachable:
        return NotReachable(
            f"the connection to {self.connection.url} broke before the answer: {_reason(error)}",
            "it may or may not have been done; look before you repeat it",
        )

    def _distrusted(self, error: aiohttp.ClientConnectorCertificateError) -> NotReachable:
        trusted = self.connection.ca_file or "the authorities of this system"
        inner = error.certificate_error
        why = getattr(inner, "verify_message", "") or str(inner)
        return NotReachable(
            f"the certificate of {self.connection.url} is not trusted by {trusted}: {why}",
            "set TRADEWIND_CA to the broker's ca.pem (`tradewind doctor` says more)",
        )


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
        return inner.strerror or str(inner) or type(inner).__name__
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection"
    return str(error) or type(error).__name__


def tls_context(connection: Connection) -> ssl.SSLContext | bool:
    """TLS that trusts the connection's CA alone, or the system's. Raises BadConfiguration."""
    if not connection.url.startswith("https:"):
        return True
    if connection.ca_file is None:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=str(connection.ca_file))
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadConfiguration(
            f"the CA file {connection.ca_file} cannot be used: {reason}",
            "fetch it again from the broker, or unset TRADEWIND_CA",
        ) from None


async def read_problem(response: aiohttp.ClientResponse) -> Problem:
    """The problem an answer >= 400 describes, whatever form it has."""
    body = b""
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_ERROR_BYTES:
                break
        document = json.loads(body) if body else {}
    except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError):
        document = {}
    if not isinstance(document, dict):
        document = {}
    reason = response.reason or "no reason given"
    return Problem(
        status=response.status,
        title=_string(document.get("title")) or f"{response.status} {reason}",
        detail=_string(document.get("detail")),
        code=_string(document.get("code")),
        errors=_faults(document.get("errors")),
        request_id=_string(document.get("request_id")),
        retry_after_s=retry_after_s(response.headers),
        document=document,
    )


def _string(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _faults(value: object) -> tuple[Fault, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(
        Fault(
            _string(item.get("path")),
            _string(item.get("problem")),
            _string(item.get("remedy")),
            _string(item.get("value")),
        )
        for item in value
        if isinstance(item, dict)
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds the answer asks us to wait (a number, or a date set against its Date header)."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(min(int(text[:9]), 86_400))
    try:
        until, now = parsedate_to_datetime(text), parsedate_to_datetime(headers.get("Date", ""))
        return max((until - now).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None
