"""Load, as a process of its own: it shares no interpreter with what it measures.

    python -m broker.local.bench.load < ORDER.json

Orders: `submit` sends one job a request, or a batch of them, over so many connections, each
waiting for its answer before it asks again; `probe` asks for little and often; `puts` writes
plain records into etcd by the client class the broker uses. The answer is one JSON line: seconds,
how many, latencies (ms). HTTP is spoken by hand, so that the load costs as little of the machine
as it can.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from broker.local.bench.figures import percentile
from federation.etcd.client import EtcdClient
from federation.etcd.endpoints import Tls, parse_endpoint
from federation.kv import Put, Txn
from federation.system import SystemClock, SystemIds

MS = 1000.0


@dataclass(frozen=True, slots=True)
class Done:
    """What came of an order."""

    seconds: float
    count: int
    latencies_ms: tuple[float, ...]

    def document(self) -> dict[str, Any]:
        """As it is printed."""
        shares = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
        return {
            "seconds": self.seconds,
            "count": self.count,
            "per_s": self.count / self.seconds,
            **{name: percentile(self.latencies_ms, share) for name, share in shares.items()},
            "max_ms": max(self.latencies_ms),
        }


async def at_once(workers: int, turns: int, one: Callable[[int, int], Awaitable[None]]) -> Done:
    """`workers` coroutines that each do `one(worker, turn)` again and again, `turns` in all."""
    clock = SystemClock()
    latencies: list[float] = []

    async def work(worker: int) -> None:
        for turn in range(worker, turns, workers):
            began_s = clock.monotonic_s()
            await one(worker, turn)
            latencies.append((clock.monotonic_s() - began_s) * MS)

    began_s = clock.monotonic_s()
    await asyncio.gather(*(work(worker) for worker in range(workers)))
    return Done(clock.monotonic_s() - began_s, turns, tuple(latencies))


# Submitting ---------------------------------------------------------------------------------------


class Http:
    """One kept connection to the API. Raises RuntimeError for an answer that is no success."""

    def __init__(self, url: str, token: str, ca_file: str) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "", parts.port or 443
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._head = (
            f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\n"
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        """Connect."""
        host, port = self._address
        self._streams = await asyncio.open_connection(host, port, ssl=self._tls)

    def close(self) -> None:
        """Disconnect."""
        if self._streams is not None:
            self._streams[1].close()

    async def post(self, path: str, body: bytes, key: str) -> bytes:
        """Send something and read the answer."""
        head = f"Idempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n"
        return await self._ask(f"POST {path}", head, body)

    async def get(self, path: str) -> bytes:
        """Ask for something."""
        return await self._ask(f"GET {path}", "", b"")

    async def _ask(self, what: str, head: str, body: bytes) -> bytes:
        assert self._streams is not None, "opened before"
        reader, writer = self._streams
        writer.write(f"{what} HTTP/1.1\r\n{self._head}{head}\r\n".encode() + body)
        said = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = next(
            int(line.partition(":")[2])
            for line in said.split("\r\n")
            if line.lower().startswith("content-length:")
        )
        answer = await reader.readexactly(length)
        status = said[9:12]
        if not status.startswith("2"):
            raise RuntimeError(f"{what} answered {status}: {answer[:300]!r}")
        return answer


async def submit(order: dict[str, Any]) -> Done:
    """`batch` 0: one job a request; else so many a request. Each runs another command, as the
    jobs of a sweep do."""
    batch, turns = order["batch"], order["requests"]
    path = "/v1/jobs/batch" if batch else "/v1/jobs"
    run = SystemIds().token_bytes(8).hex()
    lines = [
        Http(order["url"], order["token"], order["ca"]) for _ in range(order["connections"])
    ]
    await asyncio.gather(*(line.open() for line in lines))

    bodies = [_body(order["spec"], batch, turn) for turn in range(turns)]

    async def one(worker: int, turn: int) -> None:
        await lines[worker].post(path, bodies[turn], f"{run}-{turn}")

    try:
        done = await at_once(len(lines), turns, one)
    finally:
        for line in lines:
            line.close()
    return Done(done.seconds, done.count * max(batch, 1), done.latencies_ms)


def _body(spec: dict[str, Any], batch: int, turn: int) -> bytes:
    jobs = [
        spec | {"run": f"{spec['run']} {turn * max(batch, 1) + index}"}
        for index in range(max(batch, 1))
    ]
    return json.dumps({"jobs": jobs} if batch else jobs[0]).encode()


# A bystander --------------------------------------------------------------------------------------


async def probe(order: dict[str, Any]) -> Done:
    """Ask for next to nothing every `every_s` for `seconds`: what somebody waits who asks while
    the broker is busy, and so how long its event loop stands still."""
    clock, line = SystemClock(), Http(order["url"], "", order["ca"])
    await line.open()
    latencies: list[float] = []
    end_s = clock.monotonic_s() + order["seconds"]
    while (began_s := clock.monotonic_s()) < end_s:
        await line.get("/healthz")
        latencies.append((clock.monotonic_s() - began_s) * MS)
        await asyncio.sleep(order["every_s"])
    line.close()
    return Done(order["seconds"], len(latencies), tuple(latencies))


# Floor --------------------------------------------------------------------------------------------


async def puts(order: dict[str, Any]) -> Done:
    """One record a transaction, so many transactions under way at once."""
    tls = Tls.from_files(*(Path(order[name]) for name in ("ca", "certificate", "key")))
    clients = [
        EtcdClient([parse_endpoint(order["endpoint"])], tls) for _ in range(order["channels"])
    ]
    value = b"v" * order["value_bytes"]
    run = SystemIds().token_bytes(8).hex()

    async def one(worker: int, turn: int) -> None:
        put = Put(f"{order['prefix']}{run}/{turn}", value)
        await clients[worker % len(clients)].txn(Txn(then=(put,)))

    try:
        await at_once(order["connections"], order["connections"], lambda w, _: one(w, -1 - w))
        return await at_once(order["connections"], order["requests"], one)
    finally:
        for client in clients:
            await client.close()


ORDERS = {"submit": submit, "probe": probe, "puts": puts}


if __name__ == "__main__":
    asked = json.loads(sys.stdin.read())
    result = asyncio.run(ORDERS[asked.pop("order")](asked))
    sys.stdout.write(json.dumps(result.document()) + "\n")
