"""What a kubeconfig says of one cluster and of us there:
https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PLUGINS = ("exec", "auth-provider", "username")


@dataclass(frozen=True, slots=True)
class Access:
    """How the API server is reached. Files named by the kubeconfig stay where they are; what it
    holds itself lies in `kept`."""

    url: str
    namespace: str = ""
    ca_file: str = ""
    token_file: str = ""
    cert_file: str = ""
    key_file: str = ""


def read_kubeconfig(path: Path, context: str, kept: Path) -> Access:
    """The access of a context, by default the current one. Raises ValueError."""
    try:
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
        said = _named(body, "contexts", context or str(body.get("current-context", "")))["context"]
        cluster = _named(body, "clusters", str(said["cluster"]))["cluster"]
        user = _named(body, "users", str(said["user"])).get("user") or {}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"kubernetes.kubeconfig: {path}: {problem}") from problem
    plugins = [each for each in PLUGINS if each in user]
    if plugins:
        raise ValueError(
            f"kubernetes.kubeconfig: {path}: users.user.{plugins[0]} is not run by an agent; "
            "give it a service account's token (token_file) or a client certificate"
        )
    if cluster.get("insecure-skip-tls-verify"):
        raise ValueError(
            f"kubernetes.kubeconfig: {path}: insecure-skip-tls-verify would let anybody be the "
            "cluster; give certificate-authority"
        )
    files = _Files(path.parent, kept)
    return Access(
        url=str(cluster.get("server", "")).rstrip("/"),
        namespace=str(said.get("namespace", "")),
        ca_file=files.of(cluster, "certificate-authority"),
        token_file=files.of_token(user),
        cert_file=files.of(user, "client-certificate"),
        key_file=files.of(user, "client-key"),
    )


@dataclass(frozen=True, slots=True)
class _Files:
    beside: Path
    kept: Path

    def of(self, said: Mapping[str, Any], name: str) -> str:
        """A file that is named, or whose content is there in base64."""
        if said.get(f"{name}-data"):
            return self._keep(name, base64.b64decode(str(said[f"{name}-data"])))
        return str(self.beside / str(said[name])) if said.get(name) else ""

    def of_token(self, user: Mapping[str, Any]) -> str:
        """A file that is named goes before a token that is there."""
        if user.get("tokenFile"):
            return str(self.beside / str(user["tokenFile"]))
        return self._keep("token", str(user["token"]).encode()) if user.get("token") else ""

    def _keep(self, name: str, content: bytes) -> str:
        self.kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.kept / name
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        return str(path)


def _named(body: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    for each in body.get(kind) or ():
        if each.get("name") == name:
            found: Mapping[str, Any] = each
            return found
    there = ", ".join(str(each.get("name")) for each in body.get(kind) or ()) or "none"
    raise KeyError(f"no {kind} named {name!r}; there are: {there}")
