"""What is served without a token is served to this machine alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.settings import SettingsError as BrokerSettingsError
from broker.settings import otel_environ, read_settings
from regional_agent.settings import SettingsError, load_settings


@pytest.mark.parametrize("address", ["127.0.0.1:9464", "[::1]:9464", "localhost:0"])
def test_figures_listen_on_loopback(address: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"metrics_listen: '{address}'\nlog_format: json\n", encoding="utf-8")
    broker, agent = read_settings(file), load_settings(tmp_path, file)
    assert broker.metrics_listen == agent.metrics_listen == address
    assert broker.log_format == agent.log_format == "json"


@pytest.mark.parametrize("address", ["0.0.0.0:9464", "broker.example.org:9464", "127.0.0.1", ":1"])
def test_figures_listen_nowhere_else(address: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"metrics_listen: '{address}'\n", encoding="utf-8")
    with pytest.raises(BrokerSettingsError, match="metrics_listen.*loopback"):
        read_settings(file)
    with pytest.raises(SettingsError, match="metrics_listen.*loopback"):
        load_settings(tmp_path, file)


def test_only_the_standard_variables_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    assert otel_environ()["OTEL_SERVICE_NAME"] == "mine"
    assert all(name.startswith("OTEL_") for name in otel_environ())
    assert dict(load_settings(tmp_path).otel) == otel_environ()
