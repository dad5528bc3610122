"""The script's certificates make an etcd that lets the broker in and nobody else."""

import shutil
import subprocess
from pathlib import Path

import pytest

from broker.state.keyring import Keyring
from federation.system import SystemClock, SystemIds

SCRIPT = Path(__file__).resolve().parents[3] / "deploy/etcd/certificates.sh"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=60)


def test_members_and_broker_trust_each_other(tmp_path: Path) -> None:
    keys, made = tmp_path / "keys", tmp_path / "etcd"
    ring = Keyring.open(keys, "fed", now_ms=SystemClock().now_ms(), ids=SystemIds())
    done = run(SCRIPT, made, keys, "etcd-1.example", "10.0.0.1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"etcd_ca_file: {made}/etcd-ca.crt"
    members, clients = made / "etcd-ca.crt", made / "clients-ca.crt"
    assert run("openssl", "verify", "-CAfile", members, made / "server.crt").returncode == 0
    shown = run("openssl", "x509", "-in", made / "server.crt", "-noout", "-text").stdout
    for name in ("DNS:etcd-1.example", "IP Address:10.0.0.1", "DNS:localhost"):
        assert name in shown
    client = tmp_path / "client.pem"
    client.write_bytes(ring.etcd_client(now_ms=SystemClock().now_ms()).certificate_pem)
    assert run("openssl", "verify", "-CAfile", clients, client).returncode == 0
    assert run("openssl", "verify", "-CAfile", members, client).returncode != 0
    assert (made / "server.key").stat().st_mode & 0o077 == 0
    assert "PRIVATE" not in (made / "clients-ca.crt").read_text()

    before = (made / "server.crt").read_bytes()
    assert run(SCRIPT, made, keys, "etcd-1.example").returncode == 0
    assert (made / "server.crt").read_bytes() == before, "made once"


def test_without_keys_it_says_what_to_do(tmp_path: Path) -> None:
    done = run(SCRIPT, tmp_path / "etcd", tmp_path / "keys", "localhost")
    assert done.returncode == 1 and "start the broker once" in done.stderr
    assert run(SCRIPT).returncode == 2
