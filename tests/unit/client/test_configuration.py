from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.client.configuration import find_connection
from broker.client.errors import BadConfiguration, NotConfigured


def write_local(directory: Path, **content: str) -> Path:
    directory.mkdir(parents=True)
    file = directory / "client.json"
    file.write_text(json.dumps(content))
    return file


def write_toml(home: Path, text: str) -> None:
    directory = home / ".config/tradewind"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text(text)


def test_the_environment_comes_first(tmp_path: Path) -> None:
    write_local(tmp_path / "up", url="https://b", token="tw_b")
    environ = {"TRADEWIND_URL": "https://a.example/v1/", "TRADEWIND_TOKEN": "tw_a",
               "TRADEWIND_HOME": str(tmp_path / "up")}  # fmt: skip
    found = find_connection(environ, tmp_path)
    assert (found.url, found.token, found.source) == ("https://a.example", "tw_a", "TRADEWIND_URL")


def test_a_local_federation_is_found_without_being_told(tmp_path: Path) -> None:
    directory = tmp_path / ".local/state/tradewind/up"
    write_local(directory, url="https://127.0.0.1:7443", token="tw_x", ca_file="ca.pem")
    found = find_connection({}, tmp_path)
    assert found.url == "https://127.0.0.1:7443"
    assert found.ca_file == directory / "ca.pem"
    assert "tw_x" not in repr(found)


def test_the_users_file_goes_before_the_default_federation(tmp_path: Path) -> None:
    write_local(tmp_path / ".local/state/tradewind/up", url="https://local")
    (tmp_path / "token").write_text("tw_file\n")
    write_toml(tmp_path, f'url = "https://far"\ntoken_file = "{tmp_path}/token"\n')
    found = find_connection({}, tmp_path)
    assert (found.url, found.token) == ("https://far", "tw_file")
    assert find_connection({"TRADEWIND_TOKEN": "tw_e"}, tmp_path).token == "tw_e"


def test_without_any_the_remedy_is_tradewind_up(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match="tradewind up"):
        find_connection({}, tmp_path)
    with pytest.raises(NotConfigured, match="no federation runs"):
        find_connection({"TRADEWIND_HOME": str(tmp_path / "none")}, tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('ulr = "https://x"', "did you mean url"),
        ('url = "http://broker.example.org"', "not encrypted"),
        ('url = "broker.example.org"', "not an https URL"),
        ('url = "https://x/other"', "has a path"),
        ('url = "https://x:99999"', "not a URL"),
        ("url = 3", "not text"),
        ("url = ", "cannot be parsed"),
    ],
)
def test_what_cannot_be_used_is_told(tmp_path: Path, text: str, said: str) -> None:
    write_toml(tmp_path, text)
    with pytest.raises(BadConfiguration, match=said):
        find_connection({}, tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", '{"url": 3}', "\udcff"])
def test_a_damaged_client_file_is_told(tmp_path: Path, content: str) -> None:
    file = write_local(tmp_path / "up", url="x")
    file.write_text(content, errors="surrogateescape")
    with pytest.raises(BadConfiguration):
        find_connection({"TRADEWIND_HOME": str(tmp_path / "up")}, tmp_path)
