"""Round trips to other regions: the time a TCP connect takes, and a responder to be measured by.

A connect is one round trip, needs no permission and no protocol, and passes wherever our own
traffic has to pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from federation.environment import Clock
from regional_agent.sense.reports import LatencyReport, RoundTrip

TIMEOUT_S = 3.0
SAMPLES = 3
AT_ONCE = 8
UNREACHABLE_US = -1


class InvalidTarget(ValueError):
    """A latency target that is not host:port; names the rule."""


@dataclass(frozen=True, slots=True)
class Target:
    """A place to measure to, standing for its region."""

    region: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """`host:port`, a literal IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_target(region: str, text: str) -> Target:
    """A target from `host:port` or `[v6]:port`. Raises InvalidTarget."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidTarget(f"latency target {text!r} is not host:port")
    return Target(region, host, int(port))


async def connect_us(target: Target, clock: Clock, timeout_s: float = TIMEOUT_S) -> int:
    """How long one TCP connect takes; UNREACHABLE_US if it fails or takes `timeout_s`."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            # The name is looked up first: a slow resolver is no distance.
            found = await loop.getaddrinfo(
                target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
            host, port = found[0][4][:2]
            began_s = clock.monotonic_s()
            _, writer = await asyncio.open_connection(host, port)
            took_us = round((clock.monotonic_s() - began_s) * 1_000_000)
    except (OSError, TimeoutError):
        return UNREACHABLE_US
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return max(1, took_us)


async def measure(target: Target, clock: Clock, timeout_s: float = TIMEOUT_S) -> RoundTrip:
    """The median of three connects, one after the other; of those that succeed."""
    taken = [await connect_us(target, clock, timeout_s) for _ in range(SAMPLES)]
    reached = [us for us in taken if us != UNREACHABLE_US]
    # Two failures of three are no measurement but an outage.
    rtt_us = round(median(reached)) if len(reached) * 2 > SAMPLES else UNREACHABLE_US
    return RoundTrip(target.region, target.address, rtt_us, clock.now_ms())


async def latency_report(
    generation: int, targets: Sequence[Target], clock: Clock, timeout_s: float = TIMEOUT_S
) -> LatencyReport:
    """Measure every target, a few at once so that they do not delay one another."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(target: Target) -> RoundTrip:
        async with gate:
            return await measure(target, clock, timeout_s)

    return LatencyReport(generation, tuple(await asyncio.gather(*map(one, targets))))


def parse_targets(declared: Mapping[str, Sequence[str]]) -> tuple[Target, ...]:
    """Targets by region. Raises InvalidTarget."""
    return tuple(parse_target(region, text) for region, texts in declared.items() for text in texts)


class LatencyResponder:
    """Accepts connections and closes them at once, so that other sites can measure to here."""

    def __init__(self, host: str, port: int) -> None:
        """Port 0 = any free one, see `port` once started."""
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to listen. Raises OSError if the address is taken."""
        self._server = await asyncio.start_server(_close, self._host, self._port)

    @property
    def port(self) -> int:
        """The port listened on. Raises RuntimeError before `start`."""
        if self._server is None:
            raise RuntimeError("the responder has not been started")
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()


async def _close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
