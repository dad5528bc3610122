"""Settings of the one port: what follows from it, and what makes no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.settings import BrokerSettings, SettingsError, read_settings
from federation.front_names import dialled


def settings(tmp_path: Path, **given: Any) -> BrokerSettings:
    file = tmp_path / "broker.yaml"
    file.write_text(yaml.safe_dump(given), encoding="utf-8")
    return read_settings(file)


def test_two_ports_are_the_default(tmp_path: Path) -> None:
    plain = settings(tmp_path)
    assert plain.public_api_url == "https://127.0.0.1:8443"
    assert plain.public_session_addresses == ("127.0.0.1:8444",)
    assert plain.certificate_names == plain.server_names


def test_what_follows_from_a_front(tmp_path: Path) -> None:
    front = settings(
        tmp_path, front_listen="0.0.0.0:443", server_names=["10.0.0.1", "b.example", "::1"]
    )
    assert front.public_api_url == "https://b.example:443"
    assert front.public_session_addresses == ("session.b.example:443",)
    assert front.certificate_names == ("10.0.0.1", "b.example", "::1", "session.b.example")


def test_what_is_said_goes_before_what_follows(tmp_path: Path) -> None:
    front = settings(
        tmp_path, front_listen="0.0.0.0:443", api_url="https://x", session_addresses=["y:1"]
    )
    assert (front.public_api_url, front.public_session_addresses) == ("https://x", ("y:1",))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"front_listen": ":443", "server_names": ["10.0.0.1"]}, "DNS name in server_names"),
        ({"session_addresses": ["session.b.example:443"]}, "need front_listen"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, given: Any, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        settings(tmp_path, **given)


@pytest.mark.parametrize(
    ("address", "to", "name"),
    [
        ("session.b.example:443", "b.example:443", "session.b.example"),
        ("b.example:8444", "b.example:8444", ""),
        ("sessions.example:8444", "sessions.example:8444", ""),
        ("[::1]:8444", "[::1]:8444", ""),
    ],
)
def test_where_an_address_is_dialled(address: str, to: str, name: str) -> None:
    assert dialled(address) == (to, name)
