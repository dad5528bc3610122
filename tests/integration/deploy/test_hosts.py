"""docs/deploy-hosts.md step by step: etcd and broker of two users, by the commands of the units."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from tests.etcd_server import free_ports, require_binary

ROOT = Path(__file__).resolve().parents[3]
BROKER, ETCD, AGENT = 61001, 61002, 61003
"""Users of this machine who are nobody else."""
WAIT_S = 60.0
AS_ROOT = os.geteuid() == 0


class Machine:
    """A machine's /etc and /var/lib below one directory, and what runs there."""

    def __init__(self, root: Path) -> None:
        self.etc, self.var = root / "etc/tradewind", root / "var/lib"
        self.etc.mkdir(parents=True)
        self.var.mkdir(parents=True)
        self.client, self.peer, self.api, self.session, self.front = free_ports(5)
        packages = [str(ROOT), str(ROOT / "proto"), sysconfig.get_paths()["purelib"], *sys.path]
        paths = os.pathsep.join(dict.fromkeys(each for each in packages if each))
        self.env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": paths}
        self.python = "/usr/bin/python3" if AS_ROOT else sys.executable
        self.started: list[subprocess.Popen[str]] = []

    def state(self, name: str, user: int) -> Path:
        """What StateDirectory= makes."""
        made = self.var / name
        made.mkdir(mode=0o700)
        if AS_ROOT:
            os.chown(made, user, user)
        return made

    def become(self, user: int, *words: object) -> list[str]:
        ids = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        return [*(ids if AS_ROOT else []), *map(str, words)]

    def run(self, user: int, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.become(user, *words), capture_output=True, text=True, timeout=60, env=self.env
        )

    def start(self, user: int, log: Path, *words: object) -> None:
        with log.open("w") as out:
            self.started.append(subprocess.Popen(
                self.become(user, *words), stdout=out, stderr=out, text=True, env=self.env
            ))  # fmt: skip

    def broker(self) -> tuple[object, ...]:
        return (self.python, "-m", "broker", "broker", "run", "--config", self.etc / "broker.yaml")

    def etcd(self, binary: str) -> list[str]:
        """The unit's command with this machine's places."""
        unit = (ROOT / "deploy/systemd/system/tradewind-etcd.service").read_text()
        command = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", unit, re.MULTILINE)
        assert command is not None
        here = {
            "/usr/bin/etcd": binary, "/etc/tradewind": str(self.etc), "/var/lib": str(self.var),
            "${ETCD_ADDRESS}:2379": f"127.0.0.1:{self.client}",
            "${ETCD_ADDRESS}:2380": f"127.0.0.1:{self.peer}", "${ETCD_MEMBER}": "m1",
            "${ETCD_MEMBERS}": f"m1=https://127.0.0.1:{self.peer}",
        }  # fmt: skip
        text = command[1].replace("\\\n", " ")
        for there, mine in here.items():
            text = text.replace(there, mine)
        return text.split()


@pytest.fixture
def machine():
    """In a place every user may enter."""
    root = Path("/tmp") / f"tradewind-hosts-{os.getpid()}"
    made = Machine(root)
    probe = made.run(BROKER, made.python, "-c", "import broker.app")
    if probe.returncode:
        shutil.rmtree(root)
        pytest.skip(f"no user but root can run this checkout: {probe.stderr.strip()[-200:]}")
    yield made
    for process in made.started:
        process.kill()
        process.wait()
    shutil.rmtree(root)


def test_broker_and_etcd_come_up_in_the_order_of_the_page(machine: Machine) -> None:
    binary = require_binary()
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    state = machine.state("tradewind", BROKER)
    machine.state("tradewind-etcd", ETCD)
    (machine.etc / "broker.yaml").write_text(
        f"state_dir: {state}\netcd_endpoints: ['https://127.0.0.1:{machine.client}']\n"
        f"etcd_ca_file: {machine.etc}/etcd/etcd-ca.crt\n"
        f"api_listen: 127.0.0.1:{machine.api}\nsession_listen: 127.0.0.1:{machine.session}\n"
        f"front_listen: 127.0.0.1:{machine.front}\nserver_names: [broker.example]\n"
    )
    first = machine.run(BROKER, *machine.broker())
    assert first.returncode == 2, first.stderr
    assert f"etcd_ca_file: {machine.etc}/etcd/etcd-ca.crt cannot be read" in first.stderr
    assert "certificates.sh" in first.stderr and "a fault in tradewind" not in first.stderr

    script = ROOT / "deploy/etcd/certificates.sh"
    made = machine.run(0, script, machine.etc / "etcd", state / "keys", "127.0.0.1")
    assert made.returncode == 0, made.stderr
    for each in (machine.etc / "etcd", *(machine.etc / "etcd").iterdir()):
        if AS_ROOT:
            os.chown(each, ETCD, -1)
        assert each.suffix != ".key" or each.stat().st_mode & 0o077 == 0
    machine.start(ETCD, machine.var / "etcd.log", *machine.etcd(binary))
    machine.start(BROKER, machine.var / "broker.log", *machine.broker())
    deadline_s = time.monotonic() + WAIT_S
    while not (state / "operator.token").exists():
        alive = all(process.poll() is None for process in machine.started)
        said = "".join(path.read_text()[-2000:] for path in machine.var.glob("*.log"))
        assert alive and time.monotonic() < deadline_s, said
        time.sleep(0.1)
    # Its gateway would dial itself with the members' certificate, and fill the log with refusals.
    assert "rejected connection" not in (machine.var / "etcd.log").read_text()


@pytest.mark.skipif(not AS_ROOT, reason="is about a directory that only root can make")
def test_an_agent_that_may_not_make_its_directory_says_so(machine: Machine) -> None:
    machine.var.chmod(0o755)
    words = ("join", "https://127.0.0.1:1", "--token", "t", "--ca-hash", "sha256:" + "0" * 64)
    state = machine.var / "tradewind-agent"
    done = machine.run(AGENT, machine.python, "-m", "regional_agent", *words, "--state-dir", state)
    assert done.returncode == 1
    assert done.stderr == (
        f"tradewind-agent: {state} cannot be made: Permission denied; "
        "--state-dir names another place\n"
    )
