"""A federation to measure: etcd and a broker of its own, real sites, stub sites, load.

    async with Stage.open(given, real=("us-east",), stubs=(Stub("stub-a", "", 1000),)) as stage:
        await stage.load({"order": "submit", ...})
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from broker.client import Client, ClientError
from broker.client.transport import Patience, Request, Transport
from broker.local.bench.stub_site import Stub
from broker.local.federation import BROKER, LocalFederation, Surroundings
from broker.local.inventory import sites
from broker.local.keeping import environment, tail
from broker.local.layout import Home
from broker.state.keyring import Keyring
from federation.certificates import make_csr, new_key
from federation.environment import Clock
from federation.private_files import make_private_directory, write_private
from federation.system import SystemIds, SystemRng

LOAD_WITHIN_S = 300.0
CONNECTED_WITHIN_S = 60.0
HASTE = Patience(total_s=0.0)
"""One try, so that the first answer is seen when it comes."""
Told = dict[str, Any]


class BenchFailed(RuntimeError):
    """What was to be measured did not work; the text says which part."""


@dataclass(slots=True)
class Stage:
    """One federation for one run, in a directory that is gone afterwards."""

    federation: LocalFederation
    environ: Mapping[str, str]
    clock: Clock
    stubs: tuple[Stub, ...] = ()
    _stub_process: asyncio.subprocess.Process | None = None
    _etcd: dict[str, str] = field(default_factory=dict)

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(
        given: Surroundings, *, real: Sequence[str] = (), stubs: Sequence[Stub] = ()
    ) -> AsyncIterator[Stage]:
        """Up and connected; ended and removed at the end. `given.tell` hears of what fails only.
        Raises BenchFailed, StartFailed, OSError."""
        root = Path(tempfile.mkdtemp(prefix="tradewind-bench-"))
        chosen = sites(tuple(real)) if real else ()
        quiet = replace(given, tell=lambda _: None)
        try:
            async with LocalFederation(Home(root), chosen, quiet) as federation:
                environ = environment(root, given.environ)
                stage = Stage(federation, environ, given.clock, tuple(stubs))
                try:
                    await federation.start()
                    await stage._start_stubs()
                    yield stage
                except BaseException:
                    given.tell(f"the broker's log ends: {tail(federation.home.log(BROKER))}")
                    raise
                finally:
                    await stage._end_stubs()
                    await asyncio.to_thread(federation.stop)
        finally:
            shutil.rmtree(root, ignore_errors=True)

    # Stub sites -----------------------------------------------------------------------------------

    async def _start_stubs(self) -> None:
        if not self.stubs:
            return
        directory = self.federation.home.root / "stubs"
        make_private_directory(directory)
        async with self.federation.client() as client:
            addresses = [await self._enrol(client, directory, stub) for stub in self.stubs]
        settings = [
            asdict(replace(stub, address=address))
            for stub, address in zip(self.stubs, addresses, strict=True)
        ]
        write_private(directory / "stub.json", json.dumps(settings).encode())
        self._stub_process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "broker.local.bench.stub_site", str(directory),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=self.environ,
        )  # fmt: skip
        await self.connected([stub.cluster for stub in self.stubs])

    async def _enrol(self, client: Client, directory: Path, stub: Stub) -> str:
        """Join as an agent does, with a key of its own; returns where to dial."""
        invitation = await client.invite(stub.cluster, stub.cluster, "15m")
        key_pem = new_key()
        body = {
            "token": invitation["token"],
            "csr": make_csr(key_pem, "agent").decode("ascii"),
        }
        answer = await client.transport.send(Request("POST", "/enrol", document=body))
        said = answer.document()
        write_private(directory / f"{stub.cluster}.crt", said["certificate_pem"].encode())
        write_private(directory / f"{stub.cluster}.key", key_pem)
        write_private(directory / "ca.pem", said["ca_pem"].encode())
        return str(said["session_addresses"][0])

    async def connected(self, names: Sequence[str]) -> None:
        """Wait until these clusters have a session and said what they have."""
        async with self.federation.client() as client, asyncio.timeout(CONNECTED_WITHIN_S):
            while True:
                known = await client.clusters()
                ready = {c["name"] for c in known if c.get("connected") and c.get("pools")}
                if ready.issuperset(names):
                    return
                await asyncio.sleep(0.05)

    async def stub_counts(self) -> list[Told]:
        """What each stub did so far."""
        process = self._stub_process
        if process is None or process.stdin is None or process.stdout is None:
            raise BenchFailed("there is no stub site")
        process.stdin.write(b"\n")
        line = await process.stdout.readline()
        if not line:
            raise BenchFailed("the stub sites ended")
        counts: list[Told] = json.loads(line)
        return counts

    async def until_stubs(
        self, holds: Callable[[list[Told]], bool], within_s: float
    ) -> list[Told]:
        """Wait until what the stubs did is as wanted. Raises BenchFailed."""
        counts: list[Told] = []
        try:
            async with asyncio.timeout(within_s):
                while not holds(counts := await self.stub_counts()):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise BenchFailed(f"not within {within_s:g} s; stubs: {counts}") from None
        return counts

    async def stubs_after(self, seconds: float) -> list[Told]:
        """What the stubs did, so many seconds from now."""
        await asyncio.sleep(seconds)
        return await self.stub_counts()

    async def _end_stubs(self) -> None:
        process = self._stub_process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 5.0)
        except TimeoutError:
            process.kill()
            await process.wait()

    # Load -----------------------------------------------------------------------------------------

    async def submit(
        self, spec: Mapping[str, Any], requests: int, *, connections: int, batch: int = 0
    ) -> Told:
        """Submissions of one spec; `batch` 0 = one job a request."""
        connection = self.federation.connection
        return await self.load({
            "order": "submit", "url": connection.url, "token": connection.token,
            "ca": str(connection.ca_file), "spec": dict(spec), "requests": requests,
            "connections": connections, "batch": batch,
        })  # fmt: skip

    async def probe(self, seconds: float, every_s: float = 0.01) -> Told:
        """What a bystander waits for an answer meanwhile."""
        connection = self.federation.connection
        return await self.load({
            "order": "probe", "url": connection.url, "ca": str(connection.ca_file),
            "seconds": seconds, "every_s": every_s,
        })  # fmt: skip

    async def puts(self, requests: int, *, connections: int, value_bytes: int) -> Told:
        """Plain puts into the federation's etcd by the broker's own client class."""
        return await self.load({
            "order": "puts", "requests": requests, "connections": connections, "channels": 1,
            "value_bytes": value_bytes, "prefix": "/tradewind/v1/bench/",
        } | self._etcd_access())  # fmt: skip

    def _etcd_access(self) -> dict[str, str]:
        if not self._etcd:
            home = self.federation.home
            now_ms, ids = self.clock.now_ms(), SystemIds()
            keyring = Keyring.open(home.broker / "keys", "tradewind", now_ms=now_ms, ids=ids)
            own = keyring.etcd_client(now_ms=now_ms)
            write_private(home.root / "load.crt", own.certificate_pem)
            write_private(home.root / "load.key", own.key_pem)
            setting = home.broker_settings.read_text(encoding="utf-8")
            found = re.search(r"https://127\.0\.0\.1:\d+", setting)
            assert found is not None, "etcd's endpoint stands in the settings"
            self._etcd = {
                "endpoint": found[0], "ca": str(home.ca),
                "certificate": str(home.root / "load.crt"), "key": str(home.root / "load.key"),
            }  # fmt: skip
        return self._etcd

    async def load(self, order: Mapping[str, Any]) -> Told:
        """One order to a load process. Raises BenchFailed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "broker.local.bench.load", env=self.environ,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(LOAD_WITHIN_S):
            said, wrong = await process.communicate(json.dumps(dict(order)).encode())
        if process.returncode != 0:
            raise BenchFailed(f"the load ended: {wrong.decode('utf-8', 'replace')[-500:]}")
        found: Told = json.loads(said)
        return found

    # The broker -----------------------------------------------------------------------------------

    async def stop_broker(self) -> None:
        """SIGKILL, and wait until it is gone."""
        kept = self.federation.kept[BROKER]
        self.federation.kill(BROKER, signal.SIGKILL)
        while kept.alive:
            await asyncio.sleep(0.01)

    async def start_broker(self) -> tuple[float, float]:
        """Start it again; returns after how many seconds its API serves, and it leads."""
        began_s = self.clock.monotonic_s()
        self.federation.revive(BROKER)
        serves_s = 0.0
        hasty = Transport(self.federation.connection, SystemRng(), HASTE)
        async with asyncio.timeout(120), Client(hasty, SystemIds()) as client:
            while True:
                with contextlib.suppress(ClientError):
                    if not serves_s:
                        await client.transport.send(Request("GET", "//readyz"))
                        serves_s = self.clock.monotonic_s() - began_s
                    if (await client.status())["leader"]["here"]:
                        return serves_s, self.clock.monotonic_s() - began_s
                await asyncio.sleep(0.05)

    def broker_rss_bytes(self) -> int:
        """Resident memory of the broker now."""
        process = self.federation.kept[BROKER].process
        if process is None:
            raise BenchFailed("the broker does not run")
        text = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        return int(found[1]) * 1024 if found else 0

    async def metric(self, name: str) -> float:
        """The sum of a counter over its labels, as /metrics shows it."""
        async with self.federation.client() as client:
            text = (await client.transport.send(Request("GET", "//metrics"))).body.decode()
        pattern = rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$"
        return sum(float(value) for value in re.findall(pattern, text, re.MULTILINE))
