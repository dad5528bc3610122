from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.cli.dispatch import run
from tests.unit.client.speaking_server import TOKEN, SpeakingServer, serving


@dataclass(frozen=True)
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ran]


@pytest.fixture
def server() -> Iterator[SpeakingServer]:
    with serving() as running:
        yield running


@pytest.fixture
def cli(
    server: SpeakingServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Cli:
    """Run a command line against the server, in an empty directory, in UTC."""
    for name in ("TRADEWIND_HOME", "TRADEWIND_CA", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRADEWIND_URL", server.url)
    monkeypatch.setenv("TRADEWIND_TOKEN", TOKEN)
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> Ran:
        capfd.readouterr()
        code = run(arguments)
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return command
