"""A real Ray head in a network of its own: Ray listens on every address it finds."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.schedulers.slurm_cluster import until

ROOT = Path(__file__).parents[2]
PORT = 28265


def ray_program() -> str:
    """Where Ray is; empty if it is not installed."""
    named = os.environ.get("TRADEWIND_TEST_RAY", "")
    for each in (named, str(ROOT / ".venv-ray/bin/ray")):
        if each and Path(each).is_file():
            return each
    return ""


def missing() -> str:
    """What the tests of Ray lack here; empty if nothing."""
    if not ray_program():
        return "Ray is not installed: make ray, or name its program in TRADEWIND_TEST_RAY"
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "Ray needs a network namespace of its own: root and iproute2"
    return ""


_started = itertools.count()


class RayHead:
    """One head with so many CPUs and cards, all of them made up."""

    def __init__(self, scratch: Path, *, cpus: int = 8, cards: int = 8) -> None:
        self.scratch, self.cpus, self.cards = scratch, cpus, cards
        # So that two test runs, and two heads of one run, have networks of their own.
        number = (os.getpid() + 1009 * next(_started)) % 16_000
        net = f"10.98.{number // 64}.{number % 64 * 4}"
        base, last = net.rsplit(".", 1)
        self._ours, self.address = f"{base}.{int(last) + 1}", f"{base}.{int(last) + 2}"
        self.url = f"http://{self.address}:{PORT}"
        self._namespace = f"twray{number}"
        self._links = f"twr{number}a", f"twr{number}b"

    def start(self) -> None:
        """From nothing to a dashboard that answers."""
        self.stop()
        name, (ours, its) = self._namespace, self._links
        for words in (
            f"netns add {name}",
            f"link add {ours} type veth peer name {its}",
            f"link set {its} netns {name}",
            f"addr add {self._ours}/30 dev {ours}",
            f"link set {ours} up",
            f"netns exec {name} ip addr add {self.address}/30 dev {its}",
            f"netns exec {name} ip link set {its} up",
            f"netns exec {name} ip link set lo up",
        ):
            subprocess.run(["ip", *words.split()], check=True, capture_output=True, timeout=20)
        program = Path(ray_program())
        env = {
            "PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(self.scratch),
            "RAY_USAGE_STATS_ENABLED": "0", "LANG": "C.UTF-8",
        }  # fmt: skip
        words = [
            "ip", "netns", "exec", name, str(program), "start", "--head",
            f"--node-ip-address={self.address}", "--port=26379", f"--dashboard-host={self.address}",
            f"--dashboard-port={PORT}", f"--num-cpus={self.cpus}", f"--num-gpus={self.cards}",
            "--object-store-memory=100000000", f"--temp-dir={self.scratch}/ray",
            "--disable-usage-stats", '--resources={"accelerator_type:H100": 1}',
        ]  # fmt: skip
        with (self.scratch / "start.log").open("wb") as log:
            subprocess.run(
                words, env=env, check=True, stdout=log, stderr=log, timeout=120, cwd=self.scratch
            )

    def stop(self) -> None:
        """End every process of it and take its network away."""
        for _ in range(50):
            words = ["ip", "netns", "pids", self._namespace]
            said = subprocess.run(words, capture_output=True, text=True, check=False)
            pids = said.stdout.split()
            if not pids:
                break
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.1)
        for words in (["link", "del", self._links[0]], ["netns", "del", self._namespace]):
            subprocess.run(["ip", *words], check=False, capture_output=True, timeout=20)


__all__ = ["RayHead", "missing", "until"]
