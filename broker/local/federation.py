"""A federation on this machine, from nothing to connected agents, and down again.

    async with LocalFederation(home, sites, surroundings) as federation:
        await federation.start()
        ... federation.connection ...

Starting is safe to repeat at any point: what exists is kept, what runs is taken over.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.client import Client, ClientError, Connection, connect
from broker.local import etcd_server, ports, processes
from broker.local.etcd_binary import EtcdBinary
from broker.local.inventory import Site
from broker.local.keeping import Kept, Service, alive, environment, module, tail
from broker.local.layout import Home
from broker.local.processes import Process, process_of
from broker.local.record import Record, read_record, write_record
from broker.local.settings_files import write_agent_settings, write_broker_settings
from broker.local.teardown import JOB_GRACE_S, SERVICE_GRACE_S, sweep
from broker.state.keyring import Keyring
from federation.environment import Clock, Ids
from federation.private_files import make_private_directory, read_private, write_private

FEDERATION = "tradewind"
ETCD, BROKER = "etcd", "broker"
LOOK_S = 0.25
HOUSEKEEPING_S = 3600.0
INVITATION_TTL = "15m"


class StartFailed(RuntimeError):
    """The federation did not come up; the text says which part, why, and where its log is."""


class AlreadyUp(RuntimeError):
    """Another process keeps this federation; `record` says what runs."""

    def __init__(self, record: Record | None) -> None:
        super().__init__("this federation is kept by another process already")
        self.record = record


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the federation is given of this machine. `tell` takes lines of progress."""

    etcd: EtcdBinary
    environ: Mapping[str, str]
    clock: Clock
    ids: Ids
    tell: Callable[[str], None]
    within_s: float = 60.0
    broker_settings: Mapping[str, Any] = field(default_factory=dict)


class LocalFederation:
    """Holds the lock of `home` from entering to leaving the context."""

    def __init__(self, home: Home, sites: tuple[Site, ...], given: Surroundings) -> None:
        self.home = home
        self.sites = sites
        self.kept: dict[str, Kept] = {}
        self._given = given
        self._lock: int | None = None
        self._env = environment(home.root, given.environ)
        self._ports = ports.Ports(0, 0, 0, 0, {})
        self._token = ""

    async def __aenter__(self) -> LocalFederation:
        """Raises AlreadyUp, OSError (also where others could read the directory)."""
        make_private_directory(self.home.root)
        self._lock = os.open(self.home.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise AlreadyUp(read_record(self.home)) from None
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def url(self) -> str:
        """The API."""
        return self._ports.url

    @property
    def connection(self) -> Connection:
        """How to speak to it as its operator."""
        return Connection(self.url, self._token, self.home.ca, "tradewind up")

    def client(self) -> Client:
        """A client, to be used in `async with`."""
        return connect(self.connection)

    # Starting -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bring everything up. Raises StartFailed, PortTaken, KeyringError, OSError."""
        running = self._left_running()
        names = tuple(site.name for site in self.sites)
        self._ports = ports.choose(self.home, names)
        if not running:
            ports.check_free(self._ports)
        keyring = self._keys()
        write_broker_settings(self.home, self._ports, names, self._given.broker_settings)
        etcd = self._keep(self._etcd_service(), running)
        try:
            await etcd_server.make_ready(
                self._ports.etcd, keyring, lambda: etcd.alive,
                within_s=self._given.within_s, now_ms=self._given.clock.now_ms(),
            )  # fmt: skip
        except etcd_server.EtcdNotReady as error:
            raise self._failed(ETCD, str(error)) from error
        self._given.tell(f"etcd {self._given.etcd.version_text} ({self._given.etcd.origin})")
        await self._start_broker(running)
        self._given.tell(f"broker at {self.url}")
        async with self.client() as client:
            await asyncio.gather(*(self._start_agent(client, s, running) for s in self.sites))
            await self._until_connected(client)
        self._write_client_file()
        self._write_record()

    def _left_running(self) -> dict[str, Process]:
        """Processes a supervisor that died has left; what is no longer named in its record goes."""
        record = read_record(self.home)
        named = record.processes if record else {}
        living = {name: process for name, process in named.items() if process.alive}
        if {ETCD, BROKER} <= living.keys():
            return living
        sweep(self.home)
        return {}

    def _keys(self) -> Keyring:
        now_ms, given = self._given.clock.now_ms(), self._given
        make_private_directory(self.home.broker)
        keys_dir = self.home.broker / "keys"
        keyring = Keyring.open(keys_dir, FEDERATION, now_ms=now_ms, ids=given.ids)
        etcd_server.write_certificates(self.home, keyring, now_ms=now_ms)
        make_private_directory(self.home.etcd_data)
        write_private(self.home.ca, keyring.ca_bundle)
        return keyring

    def _etcd_service(self) -> Service:
        argv = etcd_server.command(
            self._given.etcd.path, self.home, self._ports.etcd, self._ports.etcd_peer
        )
        return Service(ETCD, tuple(argv), self._env, self.home.log(ETCD))

    async def _start_broker(self, running: Mapping[str, Process]) -> None:
        argv = module("broker", "broker", "run", "--config", str(self.home.broker_settings))
        kept = self._keep(Service(BROKER, argv, self._env, self.home.log(BROKER)), running)
        async for last in self._waiting(BROKER, "does not answer"):
            if not kept.alive:
                raise self._failed(BROKER, "ended while it started")
            with contextlib.suppress(OSError):
                self._token = read_private(self.home.broker / "operator.token").decode().strip()
            if not self._token:
                continue
            try:
                async with self.client() as client:
                    await client.status()
                    return
            except ClientError as error:
                last.append(str(error))

    async def _start_agent(
        self, client: Client, site: Site, running: Mapping[str, Process]
    ) -> None:
        state = self.home.agent(site.name)
        make_private_directory(self.home.agents)
        make_private_directory(state)
        write_agent_settings(self.home, site, self.sites, self._ports)
        if site.name not in running and not (state / "identity" / "agent.crt").exists():
            await self._join(client, site, state)
        argv = module("regional_agent", "run", "--state-dir", str(state))
        self._keep(Service(site.name, argv, self._env, self.home.log(site.name)), running)

    async def _join(self, client: Client, site: Site, state: Path) -> None:
        invitation = await client.invite(site.name, site.name, INVITATION_TTL)
        # What an operator would type at the site, but with the interpreter that runs this.
        words = shlex.split(str(invitation["command"]))[1:]
        argv = module("regional_agent", *words, "--state-dir", str(state))
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        if process.returncode != 0:
            text = said.decode("utf-8", "replace").strip() or f"exit {process.returncode}"
            raise StartFailed(f"{site.name} could not join: {text}")

    async def _until_connected(self, client: Client) -> None:
        wanted = {site.name for site in self.sites}
        async for last in self._waiting("agents", "do not connect"):
            for name in wanted:
                if not self.kept[name].alive:
                    raise self._failed(name, "ended while it started")
            known = await client.clusters()
            ready = {str(c["name"]) for c in known if c.get("connected") and c.get("pools")}
            if wanted <= ready:
                return
            missing = sorted(wanted - ready)
            last.append(f"missing: {', '.join(missing)}; {tail(self.home.log(missing[0]))[-300:]}")

    async def _waiting(self, what: str, why: str) -> Any:
        """Turns of a loop that waits; each is given a list for the last thing that was said."""
        said: list[str] = []
        for _ in range(int(self._given.within_s / 0.1)):
            yield said
            await asyncio.sleep(0.1)
        last = f" ({said[-1]})" if said else ""
        raise self._failed(what, f"{why} within {self._given.within_s:g} s{last}")

    def _failed(self, name: str, why: str) -> StartFailed:
        said = tail(self.home.log(name))
        shown = f"; its log {self.home.log(name)} ends:\n{said}" if said else ""
        return StartFailed(f"{name}: {why}{shown}")

    def _keep(self, service: Service, running: Mapping[str, Process]) -> Kept:
        kept = self.kept[service.name] = Kept(service)
        now_s = self._given.clock.monotonic_s()
        if service.name in running:
            kept.adopt(running[service.name], now_s)
        else:
            kept.start(now_s)
            self._write_record()
        return kept

    # Running --------------------------------------------------------------------------------------

    async def keep(self, stop: asyncio.Event) -> None:
        """Start again what ends, until told to stop."""
        housekeeping_s = self._given.clock.monotonic_s()
        while not stop.is_set():
            now_s = self._given.clock.monotonic_s()
            for said in [kept.look(now_s) for kept in self.kept.values()]:
                if said:
                    self._given.tell(said)
                    self._write_record()
            if now_s - housekeeping_s > HOUSEKEEPING_S:
                housekeeping_s = now_s
                self._keys()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await stop.wait()

    def kill(self, name: str, number: int) -> None:
        """Signal one process and leave it ended until `revive`."""
        kept = self.kept[name]
        kept.wanted = False
        if kept.process is not None:
            kept.process.send(number)

    def revive(self, name: str) -> None:
        """Start what was ended by `kill`."""
        kept = self.kept[name]
        kept.wanted = True
        kept.start(self._given.clock.monotonic_s())
        self._write_record()

    # Down -----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End agents, keepers and jobs, then broker, then etcd. Raises NotStopped."""
        for kept in self.kept.values():
            kept.wanted = False
        self._end([name for name in self.kept if name not in (ETCD, BROKER)])
        found = processes.find(self.home.root, self.home.agents)
        processes.kill(found.keepers)
        processes.end(processes.find(self.home.root, self.home.agents).jobs, JOB_GRACE_S)
        self._end([BROKER])
        self._end([ETCD])
        sweep(self.home)

    def _end(self, names: list[str]) -> None:
        found = [kept.process for name in names if (kept := self.kept.get(name))]
        processes.end([process for process in found if process is not None], SERVICE_GRACE_S)

    def let_go(self) -> None:
        """Leave everything running, for another supervisor to take over."""
        self._write_record(supervised=False)

    # Files ----------------------------------------------------------------------------------------

    def _write_client_file(self) -> None:
        content = {"url": self.url, "token": self._token, "ca_file": str(self.home.ca)}
        write_private(self.home.client, json.dumps(content, indent=1).encode())

    def _write_record(self, *, supervised: bool = True) -> None:
        supervisor = process_of(os.getpid()) if supervised else None
        write_record(self.home, Record(supervisor, self.url, alive(list(self.kept.values()))))
