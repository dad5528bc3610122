"""A real federation for tests: etcd, a broker and agents as processes that can be killed.

Everything lies in one directory on loopback ports. Jobs prove what ran by lines they append to
files: a line per start, so a second start shows.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.etcd_server import require_binary

START_WITHIN_S = 30.0
ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    """A loopback port nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(holds: Callable[[], Any], within_s: float, what: str) -> Any:
    """Wait until a condition holds; fails with `what` after a while."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        found = holds()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {within_s:g} s: {what}")


@dataclass
class RealFederation:
    """Processes by name; `start_*` and `kill_*` as the test says."""

    directory: Path
    ttl_s: float = 1.5
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    etcd_ports: tuple[int, int] = (0, 0)
    api_port: int = 0
    session_port: int = 0
    token: str = ""

    def start(self, *clusters: str, slots: int = 8) -> None:
        """etcd, a broker, and an agent for each cluster, all talking."""
        self.etcd_ports = (free_port(), free_port())
        self.api_port, self.session_port = free_port(), free_port()
        self.start_etcd()
        self.start_broker()
        for cluster in clusters:
            self.join(cluster, slots)
            self.start_agent(cluster)
        until(
            lambda: all(c["connected"] and c["pools"] for c in self.clusters()),
            START_WITHIN_S,
            "all clusters connected",
        )

    # Processes ------------------------------------------------------------------------------------

    def start_etcd(self) -> None:
        """One member; its data outlives it."""
        client, peer = (f"http://127.0.0.1:{port}" for port in self.etcd_ports)
        self._spawn(
            "etcd",
            [
                require_binary(),
                "--data-dir", str(self.directory / "etcd"),
                "--listen-client-urls", client,
                "--advertise-client-urls", client,
                "--listen-peer-urls", peer,
                "--initial-advertise-peer-urls", peer,
                "--initial-cluster", f"default={peer}",
                "--log-level", "error",
            ],
        )  # fmt: skip
        until(lambda: self._listening(self.etcd_ports[0]), START_WITHIN_S, "etcd listens")

    def start_broker(self) -> None:
        """The broker; returns when it leads."""
        settings = {
            "state_dir": str(self.directory / "broker"),
            "etcd_endpoints": [f"http://127.0.0.1:{self.etcd_ports[0]}"],
            "api_listen": f"127.0.0.1:{self.api_port}",
            "session_listen": f"127.0.0.1:{self.session_port}",
            "leader_ttl_s": self.ttl_s,
            "heartbeat_ms": 500,
        }
        path = self.directory / "broker.yaml"
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        self._spawn("broker", [self._script("tradewind"), "broker", "run", "--config", str(path)])
        token_file = self.directory / "broker" / "operator.token"
        until(token_file.exists, START_WITHIN_S, "the operator's token")
        self.token = token_file.read_text(encoding="utf-8").strip()
        until(self._leads, START_WITHIN_S, "the broker leads")

    def join(self, cluster: str, slots: int) -> None:
        """Invite a cluster and let its agent enrol."""
        invited = self.call(
            "POST", "/v1/clusters/invite", {"name": cluster, "region": cluster, "ttl": "10m"}
        )
        state = self.agent_dir(cluster)
        state.mkdir(mode=0o700)
        ca_hash = self.call("GET", "/v1/ca")["ca_hash"]
        subprocess.run(
            [
                self._script("tradewind-agent"), "join", self.url,
                "--token", invited["token"], "--ca-hash", ca_hash, "--state-dir", str(state),
            ],
            check=True, timeout=60, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        settings_file = state / "agent.yaml"
        settings: dict[str, Any] = {}
        if settings_file.exists():
            settings = yaml.safe_load(settings_file.read_text(encoding="utf-8")) or {}
        settings["inventory"] = [
            {"name": "cpu", "accelerator": "CPU", "nodes": 1, "accelerators_per_node": slots,
             "cpus": slots, "memory": "64GiB", "simulated": True}
        ]  # fmt: skip
        settings["isolation"] = "shared-uid"  # jobs leave marks outside their directories
        settings["prices"] = [
            {"pool": "cpu", "kind": "owned", "usd_per_accelerator_hour": 0.05,
             "as_of": "2026-11-01T00:00:00Z", "source": "typed for a test"}
        ]  # fmt: skip
        settings_file.write_text(yaml.safe_dump(settings), encoding="utf-8")

    def start_agent(self, cluster: str) -> None:
        """The agent of a cluster; it finds its keeper and its work again."""
        self._spawn(
            cluster,
            [self._script("tradewind-agent"), "run", "--state-dir", str(self.agent_dir(cluster))],
        )

    def agent_dir(self, cluster: str) -> Path:
        """State of one agent."""
        return self.directory / f"agent-{cluster}"

    def kill(self, name: str) -> None:
        """SIGKILL one process and reap it."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(20)

    def keeper_pids(self, cluster: str) -> list[int]:
        """Keepers of a cluster's agent, by their command line."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            ours = any(str(self.agent_dir(cluster)).encode() in word for word in words)
            if ours and any(b"keeper" in word for word in words):
                found.append(int(entry.name))
        return found

    def stop(self) -> None:
        """End everything, keepers and jobs included."""
        for name in list(self.processes):
            self.kill(name)
        marker = str(self.directory).encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    where = os.readlink(entry / "cwd").encode() + (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if marker in where:
                    os.kill(int(entry.name), signal.SIGKILL)

    def _spawn(self, name: str, command: list[str]) -> None:
        log = (self.directory / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.directory
        )

    def _script(self, name: str) -> str:
        return str(Path(sys.executable).parent / name)

    def _listening(self, port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    # The API --------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"https://127.0.0.1:{self.api_port}"

    def call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Any:
        """One request; raises urllib's errors."""
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        context = ssl._create_unverified_context()  # noqa: S323  a test on loopback
        with urllib.request.urlopen(request, data, timeout=20, context=context) as answer:
            return json.loads(answer.read() or b"null")

    def patiently(self, method: str, path: str, body: object, key: str) -> Any:
        """A submission that is repeated under one key until it is answered."""

        def tried() -> Any:
            try:
                return self.call(method, path, body, {"Idempotency-Key": key})
            except urllib.error.HTTPError as error:
                if error.code == 503:
                    return None
                raise
            except OSError:
                return None

        return until(tried, 60, f"{path} answered")

    def clusters(self) -> list[Any]:
        """All clusters as the API shows them."""
        return list(self.call("GET", "/v1/clusters")["clusters"])

    def _leads(self) -> bool:
        try:
            return bool(self.call("GET", "/v1/status")["leader"]["here"])
        except OSError:
            return False

    def submit(self, specs: list[dict[str, Any]], key: str) -> list[str]:
        """A batch under one idempotency key."""
        answer = self.patiently("POST", "/v1/jobs/batch", {"jobs": specs}, key)
        return list(answer["ids"])

    def job(self, job: str) -> Any:
        """One job."""
        return self.call("GET", f"/v1/jobs/{job}")

    def wait(self, jobs: list[str], within_s: float) -> dict[str, Any]:
        """Wait until all have ended; returns them."""
        found: dict[str, Any] = {}

        def all_ended() -> bool:
            for job in jobs:
                if job not in found:
                    try:
                        seen = self.job(job)
                    except OSError:
                        return False
                    if seen.get("phase", seen.get("job", {}).get("phase")) != "ended":
                        return False
                    found[job] = seen
            return True

        until(all_ended, within_s, f"{len(jobs)} jobs ended")
        return found

    # Proof ----------------------------------------------------------------------------------------

    def marking(self, seconds: float = 0.2, tail: str = "") -> dict[str, Any]:
        """A job that appends one line when it starts and one when it ends."""
        marks = self.directory / "marks"
        marks.mkdir(exist_ok=True)
        line = '"$TRADEWIND_JOB/${TRADEWIND_TASK:-0}"'
        script = (
            f"echo start {line} >> {marks}/$TRADEWIND_JOB\n"
            f"sleep {seconds}\n{tail}\n"
            f"echo end {line} >> {marks}/$TRADEWIND_JOB\n"
        )
        return {"run": script}

    def marks(self) -> Counter[str]:
        """Lines written so far, by text."""
        lines: Counter[str] = Counter()
        for path in (self.directory / "marks").iterdir():
            lines.update(path.read_text(encoding="utf-8").splitlines())
        return lines
