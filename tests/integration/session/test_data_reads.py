"""The reads that measure how fast data comes, against a real HTTP server."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from federation.system import SystemClock
from regional_agent.sense.backends.http_read import HttpRead
from regional_agent.sense.data_rates import Reading, reading_of
from regional_agent.session.site_policy import DataReads

KIB, MIB = 2**10, 2**20
FILE_BYTES = 64 * MIB


@dataclass
class Replica:
    """A server of one large file. `pace_s`: how long it waits before each 64 KiB."""

    pace_s: float = 0.0
    status: int = 206
    size_bytes: int = FILE_BYTES
    ranges: list[str] = field(default_factory=list)
    sent_bytes: int = 0
    url: str = ""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        wanted = request.headers.get("Range", "")
        self.ranges.append(wanted)
        if self.status == 302:
            raise web.HTTPFound("/elsewhere")
        last = int(wanted.rpartition("-")[2]) + 1 if self.status == 206 else self.size_bytes
        size_bytes = min(last, self.size_bytes)
        answer = web.StreamResponse(status=self.status, headers={"Content-Length": str(size_bytes)})
        await answer.prepare(request)
        while size_bytes:
            await asyncio.sleep(self.pace_s)
            block = bytes(min(64 * KIB, size_bytes))
            await answer.write(block)
            self.sent_bytes += len(block)
            size_bytes -= len(block)
        return answer


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    replica = Replica()
    app = web.Application()
    app.router.add_get("/{any:.*}", replica.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    replica.url = f"http://127.0.0.1:{port}/part-0?signature=hush"
    yield replica
    await runner.cleanup()


async def reading(replica: Replica, within_s: float = 30.0, **limits: int) -> Reading:
    read = HttpRead(SystemClock(), lambda url: "", within_s)
    return reading_of(await read(replica.url, DataReads(**limits)), 1)


async def test_a_slow_way_is_measured_and_a_fast_one_is_at_least_that_fast(
    replica: Replica,
) -> None:
    fast = await reading(replica, size_bytes=2 * MIB, bytes_per_s=1 << 40)
    replica.pace_s = 0.1
    slow = await reading(replica, size_bytes=2 * MIB)
    assert replica.ranges == ["bytes=0-2097151"] * 2
    assert replica.sent_bytes == 4 * MIB, "not a byte more than was asked for"
    assert 0 < slow.bytes_per_s < 750_000, "the server sends at most 655 kB a second"
    assert not slow.at_least
    assert fast.bytes_per_s > slow.bytes_per_s


async def test_a_way_that_is_too_slow_is_given_up_and_measured_by_what_came(
    replica: Replica,
) -> None:
    replica.pace_s = 0.4
    found = await reading(replica, within_s=2.5)
    assert 0 < found.bytes_per_s < 200_000 and not found.at_least
    assert replica.sent_bytes < MIB


async def test_it_comes_no_faster_than_the_site_allows(replica: Replica) -> None:
    found = await reading(replica, size_bytes=2 * MIB, bytes_per_s=MIB)
    assert 0 < found.bytes_per_s < 1.5 * MIB
    assert found.at_least, "we were the slow ones"


@pytest.mark.parametrize(
    ("status", "size_bytes", "words"),
    [
        (200, FILE_BYTES, "does not give part of a file"),
        (302, FILE_BYTES, "answers 302, not 206"),
        (404, MIB, "answers 404, not 206"),
        (206, 4 * KIB, "has 4096 bytes"),
    ],
)
async def test_what_measures_nothing_is_not_read_and_says_so(
    replica: Replica, caplog: pytest.LogCaptureFixture, status: int, size_bytes: int, words: str
) -> None:
    replica.status, replica.size_bytes = status, size_bytes
    with caplog.at_level(logging.WARNING):
        assert (await reading(replica)).bytes_per_s == -1
    assert words in caplog.text and "hush" not in caplog.text
    assert len(replica.ranges) == 1, "where it is sent to is not asked"


async def test_nobody_there_is_nothing_and_the_log_keeps_the_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with caplog.at_level(logging.WARNING):
        found = await reading(Replica(url=f"http://127.0.0.1:{port}/x?signature=hush"))
    assert found.bytes_per_s == -1
    assert "127.0.0.1" in caplog.text and "hush" not in caplog.text
