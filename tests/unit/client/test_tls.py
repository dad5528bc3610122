"""The broker's certificate is checked against its own CA, and nothing is sent to anybody else."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import BadConfiguration, Connection, NotReachable, Patience, connect
from federation.issuing import issue_server, make_ca
from federation.system import SystemClock
from tests.unit.client.speaking_server import TOKEN, SpeakingServer, serving

NOW_MS = SystemClock().now_ms()
QUICK = Patience(total_s=1.0)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """ca.pem of the broker and other.pem of somebody else."""
    for name in ("ca", "other"):
        ca = make_ca(name, now_ms=NOW_MS)
        (tmp_path / f"{name}.pem").write_bytes(ca.certificate_pem)
        server = issue_server(ca, ["127.0.0.1"], now_ms=NOW_MS)
        (tmp_path / f"{name}-server.pem").write_bytes(server.certificate_pem + server.key_pem)
    return tmp_path


@pytest.fixture
def secure(files: Path) -> Iterator[SpeakingServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files / "ca-server.pem")
    with serving(context) as running:
        running.answers["status"] = {"queued": 1}
        yield running


@pytest.mark.parametrize("brief", [False, True])
async def test_the_broker_is_known_by_its_ca(
    files: Path, secure: SpeakingServer, *, brief: bool
) -> None:
    url = secure.url.replace("http:", "https:")
    async with connect(Connection(url, TOKEN, files / "ca.pem"), QUICK, brief=brief) as client:
        assert await client.status() == {"queued": 1}


@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.parametrize("trusted", ["other.pem", None])
async def test_somebody_else_is_told_nothing(
    files: Path, secure: SpeakingServer, trusted: str | None, *, brief: bool
) -> None:
    url = secure.url.replace("http:", "https:")
    ca_file = files / trusted if trusted else None
    async with connect(Connection(url, TOKEN, ca_file), QUICK, brief=brief) as client:
        with pytest.raises(NotReachable, match="TRADEWIND_CA"):
            await client.status()
    assert not secure.requests


@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
async def test_a_ca_file_that_is_none_is_told(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadConfiguration, match="ca.pem"):
        async with connect(Connection("https://127.0.0.1:1", TOKEN, file)):
            pass
