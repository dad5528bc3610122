"""HTTP to the broker: TLS pinned to its CA, patience, and errors in one line.

Only what is safe to repeat is repeated: reads, uploads named by their hash, intents that say the
same thing twice, and creations that carry an Idempotency-Key. A request that never left (no
connection) is always repeated.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, TypeVar
from urllib.parse import urlencode, urlsplit

from broker.client.configuration import LOOPBACK, Connection
from broker.client.errors import BadConfiguration, NotReachable, Problem, Refused
from broker.client.replies import Answer, Distrusted, Lost, Reply
from federation.environment import Rng

if TYPE_CHECKING:
    import aiohttp

    from broker.client.brief import Brief
    from broker.client.streams import Stream, Streams

BUSY = frozenset({429, 502, 503, 504})
Some = TypeVar("Some", bound=Reply)


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

    @property
    def target(self) -> str:
        """The path from the root, with the query."""
        root = self.path.startswith("//")
        path = self.path[1:] if root else f"/v1{self.path}"
        return f"{path}?{urlencode(self.query)}" if self.query else path

    @property
    def content(self) -> tuple[bytes | None, dict[str, str]]:
        """The document as bytes, and the headers with what it is."""
        headers = dict(self.headers)
        if self.document is None:
            return None, headers
        body = json.dumps(self.document, ensure_ascii=False, allow_nan=False)
        return body.encode("utf-8", "surrogatepass"), {
            **headers, "Content-Type": "application/json",
        }  # fmt: skip


class Transport:
    """Requests to one broker. Use as an async context manager; not safe across event loops."""

    def __init__(
        self,
        connection: Connection,
        rng: Rng,
        patience: Patience | None = None,
        notify: Callable[[str], None] | None = None,
        *,
        brief: bool = False,
    ) -> None:
        """`brief`: few questions will be asked (`brief.Brief`), and no proxy is in the way."""
        self.connection = connection
        self.patience = patience or Patience()
        self._rng = rng
        self._notify = notify or (lambda text: None)
        self._is_brief = brief
        self._tls: ssl.SSLContext | None = None
        self._brief: Brief | None = None
        self._streams: Streams | None = None
        self._entered = False

    async def __aenter__(self) -> Transport:
        self._tls = tls_context(self.connection)
        self._entered = True
        if self._is_brief:
            from broker.client.brief import Brief

            patience = self.patience
            self._brief = Brief(
                self.connection.url, self._tls, patience.connect_s, patience.read_s
            )
        else:
            self._open_streams()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._entered = False
        if self._streams is not None:
            await self._streams.close()
            self._streams = None

    def _open_streams(self) -> Streams:
        if not self._entered:
            raise RuntimeError("the transport is used outside its async with")
        if self._streams is None:
            from broker.client.streams import Streams

            # A proxy named in the environment is used, but never for a broker on this machine.
            on_loopback = urlsplit(self.connection.url).hostname in LOOPBACK
            self._streams = Streams(
                self._tls, self._headers(), self.patience.connect_s, through_proxy=not on_loopback
            )
        return self._streams

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": "tradewind-client", "Accept": "application/json"}
        if self.connection.token:
            headers["Authorization"] = f"Bearer {self.connection.token}"
        return headers

    async def send(self, request: Request) -> Answer:
        """The whole answer, if it is 2xx or 3xx. Raises Refused, NotReachable, Garbled."""
        brief = self._brief
        if brief is not None and self._streams is None and request.open_body is None:
            body, headers = request.content
            target = request.method, request.target, {**self._headers(), **headers}, body
            return await self._patiently(request, lambda: brief.ask(target))
        async with self.open(request) as response:
            from broker.client.streams import whole

            try:
                body = await whole(response)
            except Lost as lost:
                raise self._broken(lost.reason) from None
            return Answer(response.status, response.headers, body)

    @asynccontextmanager
    async def open(
        self, request: Request, *, read_s: float | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer, its body yet to be read. Raises Refused, NotReachable, Garbled."""
        streams = self._open_streams()
        line = request.method, f"{self.connection.url}{request.target}"
        wait_s = self.patience.read_s if read_s is None else read_s
        content, headers = request.content

        def ask() -> Awaitable[Stream]:
            body = request.open_body() if request.open_body else content
            return streams.ask(line, headers, body, wait_s)

        stream = await self._patiently(request, ask)
        try:
            yield stream.response
        finally:
            stream.response.close()

    async def chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The body as it arrives; raises NotReachable when the connection breaks."""
        from broker.client.streams import chunks_of

        try:
            async for chunk in chunks_of(response):
                yield chunk
        except Lost as lost:
            raise self._broken(lost.reason) from None

    async def _patiently(self, request: Request, ask: Callable[[], Awaitable[Some]]) -> Some:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.patience.total_s
        pause_s = self.patience.first_pause_s
        while True:
            reply, problem, failure = await self._once(request, ask)
            if reply is not None:
                return reply
            wanted_s = problem.retry_after_s if problem else None
            wait_s = wanted_s if wanted_s is not None else pause_s * self._rng.uniform(0.5, 1.0)
            if loop.time() + wait_s > give_up_at:
                raise failure
            if wait_s >= 1.0:
                self._notify(f"{failure.text}; trying again")
            await asyncio.sleep(wait_s)
            pause_s = min(pause_s * 2, self.patience.longest_pause_s)

    async def _once(
        self, request: Request, ask: Callable[[], Awaitable[Some]]
    ) -> tuple[Some | None, Problem | None, NotReachable]:
        """One try: an answer, or why it may be tried again. Raises what is final."""
        try:
            reply = await ask()
        except Distrusted as error:
            raise self._distrusted(error.why) from None
        except Lost as lost:
            if lost.sent and not request.repeatable:
                raise self._unsure(lost.reason) from None
            return None, None, self._broken(lost.reason)
        if reply.status < 400:
            return reply, None, NotReachable("")
        problem = await reply.problem()
        if problem.status in BUSY and (request.repeatable or problem.status in (429, 503)):
            return None, problem, NotReachable(
                f"the broker cannot answer now: {problem.line}", "try again in a moment"
            )
        raise Refused(problem)

    def _broken(self, reason: str) -> NotReachable:
        return NotReachable(
            f"the broker at {self.connection.url} cannot be reached: {reason}",
            "run `tradewind doctor`, or `tradewind up` for a federation on this machine",
        )

    def _unsure(self, reason: str) -> NotReachable:
        return NotReachable(
            f"the connection to {self.connection.url} broke before the answer: {reason}",
            "it may or may not have been done; look before you repeat it",
        )

    def _distrusted(self, why: str) -> NotReachable:
        trusted = self.connection.ca_file or "the authorities of this system"
        return NotReachable(
            f"the certificate of {self.connection.url} is not trusted by {trusted}: {why}",
            "set TRADEWIND_CA to the broker's ca.pem (`tradewind doctor` says more)",
        )


def tls_context(connection: Connection) -> ssl.SSLContext | None:
    """TLS that trusts the connection's CA alone, or the system's; None for plain HTTP. Raises
    BadConfiguration."""
    if not connection.url.startswith("https:"):
        return None
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
