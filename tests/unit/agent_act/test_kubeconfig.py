"""A kubeconfig as agents read it: what is taken, and what is refused with what would be right."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from regional_agent.kubernetes.kubeconfig import read_kubeconfig
from regional_agent.settings import SettingsError, load_settings


def written(tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    path = tmp_path / "config"
    body = {
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "jobs"}}
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/"} | cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(body))
    return path


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_what_it_holds_itself_is_kept_for_the_agent_alone(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"certificate-authority-data": b64("AUTHORITY")},
        {"client-certificate-data": b64("CERT"), "client-key-data": b64("KEY"), "token": "secret"},
    )
    access = read_kubeconfig(path, "", tmp_path / "kept")
    assert (access.url, access.namespace) == ("https://10.0.0.1:6443", "jobs")
    files = (access.ca_file, access.cert_file, access.key_file, access.token_file)
    assert [Path(f).read_text() for f in files] == ["AUTHORITY", "CERT", "KEY", "secret"]
    assert {Path(f).stat().st_mode & 0o777 for f in files} == {0o600}


def test_files_it_names_lie_beside_it(tmp_path: Path) -> None:
    path = written(tmp_path, {"certificate-authority": "ca.crt"}, {"tokenFile": "/run/token"})
    access = read_kubeconfig(path, "here", tmp_path / "kept")
    assert (access.ca_file, access.token_file) == (str(tmp_path / "ca.crt"), "/run/token")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({}, {"exec": {"command": "aws"}}, "users.user.exec is not run by an agent"),
        ({}, {"username": "u", "password": "p"}, "users.user.username is not run"),
        ({"insecure-skip-tls-verify": True}, {}, "give certificate-authority"),
    ],
)
def test_what_an_agent_does_not_do_is_refused(tmp_path, cluster, user, said) -> None:
    with pytest.raises(ValueError, match=said):
        read_kubeconfig(written(tmp_path, cluster, user), "", tmp_path)


def test_a_context_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no contexts named 'there'; there are: here"):
        read_kubeconfig(written(tmp_path, {}, {}), "there", tmp_path)


def test_the_settings_take_one(tmp_path: Path) -> None:
    config = written(tmp_path, {}, {"token": "t"})
    say = f"scheduler: kubernetes\nkubernetes: {{image: i, host_path: {tmp_path}, %s}}\n"
    (tmp_path / "agent.yaml").write_text(say % f"kubeconfig: {config}")
    site = load_settings(tmp_path).kubernetes
    assert site is not None and (site.url, site.namespace) == ("https://10.0.0.1:6443", "jobs")
    assert Path(site.token_file).read_text() == "t" and site.ca_file == ""
    (tmp_path / "agent.yaml").write_text(say % f"kubeconfig: {config}, url: 'https://x'")
    with pytest.raises(SettingsError, match="kubeconfig or url, not both"):
        load_settings(tmp_path)
