"""Settings of the one port: what follows from it, and what makes no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.settings import BrokerSettings, SettingsError, read_settings
from federation.front_names import dialled
from federation.units import parse_rfc3339_ms


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


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2026-03-01", "2026-03-01T00:00:00Z"),
        ("'2026-03-01'", "2026-03-01T00:00:00Z"),
        ("2026-03-01T08:00:00Z", "2026-03-01T08:00:00+00:00"),
        ("'2026-03-01T08:00:00Z'", "2026-03-01T08:00:00Z"),
        ("2026-03-01T09:00:00+01:00", "2026-03-01T09:00:00+01:00"),
    ],
)
def test_a_day_or_a_time_as_yaml_has_it(tmp_path: Path, written: str, read: str) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text(f"typed_rtt: [{{a: x, b: y, rtt_ms: 5, source: ping, as_of: {written}}}]\n")
    (typed,) = read_settings(file).typed_rtt
    assert parse_rfc3339_ms(typed.as_of) == parse_rfc3339_ms(read)


@pytest.mark.parametrize("written", ["2026-03-01T08:00:00", "yesterday", "7", "'2026-02-30'"])
def test_a_time_that_nobody_can_place_is_an_error(tmp_path: Path, written: str) -> None:
    file = tmp_path / "broker.yaml"
    link = f"from: x, to: y, egress_usd_per_gb: 0, source: s, as_of: {written}"
    file.write_text(f"links: [{{{link}}}]\n")
    with pytest.raises(SettingsError, match=r"links.0.as_of: .*write for example 2026-03-01T"):
        read_settings(file)


def test_a_day_that_yaml_itself_cannot_read_is_an_error_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("typed_rtt: [{a: x, b: y, rtt_ms: 5, source: s, as_of: 2026-02-30}]\n")
    with pytest.raises(SettingsError, match="broker.yaml: day is out of range for month"):
        read_settings(file)
