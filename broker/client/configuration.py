"""Which broker to talk to, found in the environment, a file, or a federation on this machine.

The first of these that says a URL wins, and TRADEWIND_TOKEN and TRADEWIND_CA override its parts:

1. TRADEWIND_URL
2. TRADEWIND_HOME: the directory of a local federation, with its client.json
3. config.toml in $XDG_CONFIG_HOME/tradewind (~/.config/tradewind)
4. client.json of the default local federation, in ~/.local/state/tradewind/up
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from broker.client.errors import BadConfiguration, NotConfigured

CLIENT_FILE = "client.json"
KEYS = ("url", "token", "token_file", "ca_file")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a broker. `url` has no path; `ca_file` None trusts the system's authorities."""

    url: str
    token: str = field(default="", repr=False)
    ca_file: Path | None = None
    source: str = "given"
    file: Path | None = None


def local_home(environ: Mapping[str, str], home: Path) -> Path:
    """The directory of the federation that `tradewind up` keeps on this machine."""
    if named := environ.get("TRADEWIND_HOME"):
        return Path(named).expanduser()
    state = environ.get("XDG_STATE_HOME")
    return (Path(state) if state else home / ".local/state") / "tradewind/up"


def config_file(environ: Mapping[str, str], home: Path) -> Path:
    """Where the user's config.toml is looked for."""
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else home / ".config") / "tradewind/config.toml"


def find_connection(environ: Mapping[str, str], home: Path) -> Connection:
    """The connection the environment, the user's file or a local federation describes.

    Raises NotConfigured when there is none, BadConfiguration when one cannot be used.
    """
    found, source, file = _find(environ, home)
    token = environ.get("TRADEWIND_TOKEN") or _token(found, source)
    ca_text = environ.get("TRADEWIND_CA") or found.get("ca_file")
    ca_file = Path(ca_text).expanduser() if ca_text else None
    if ca_file is not None and file is not None and not ca_file.is_absolute():
        ca_file = file.parent / ca_file
    url = check_url(found["url"], source)
    if token and not token.isprintable() or " " in token:
        raise BadConfiguration(f"the token of {source} is not a token", "it reads tw_ID_SECRET")
    return Connection(url, token, ca_file, source, file)


def _find(
    environ: Mapping[str, str], home: Path
) -> tuple[dict[str, str], str, Path | None]:
    if url := environ.get("TRADEWIND_URL"):
        return {"url": url}, "TRADEWIND_URL", None
    local = local_home(environ, home) / CLIENT_FILE
    user = config_file(environ, home)
    if environ.get("TRADEWIND_HOME"):
        if not local.exists():
            raise NotConfigured(f"no federation runs in {local.parent}", "run: tradewind up")
        return _read(local), str(local), local
    for file in (user, local):
        if file.exists():
            content = _read(file)
            if content.get("url"):
                return content, str(file), file
    raise NotConfigured(
        "no broker to talk to",
        "run `tradewind up` for a federation on this machine, or set TRADEWIND_URL and "
        f"TRADEWIND_TOKEN, or write url and token to {user}",
    )


def _read(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8")
        content: Any = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise BadConfiguration(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise BadConfiguration(f"{file} cannot be parsed: {error}") from None
    if not isinstance(content, dict):
        raise BadConfiguration(f"{file} holds no table of keys", f"keys are {', '.join(KEYS)}")
    if file.suffix != ".json":
        _refuse_unknown(file, content)
    wrong = [key for key in KEYS if not isinstance(content.get(key, ""), str | None)]
    if wrong:
        raise BadConfiguration(f"{wrong[0]} in {file} is not text", "put it in quotes")
    return {key: content[key] for key in KEYS if content.get(key)}


def _refuse_unknown(file: Path, content: dict[str, Any]) -> None:
    for key in content:
        if key not in KEYS:
            near = get_close_matches(key, KEYS, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"keys are {', '.join(KEYS)}"
            raise BadConfiguration(f"unknown key {key} in {file}", remedy)


def _token(found: Mapping[str, str], source: str) -> str:
    if "token_file" not in found:
        return found.get("token", "")
    file = Path(found["token_file"]).expanduser()
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise BadConfiguration(f"cannot read the token_file of {source}: {error}") from None


def check_url(url: str, source: str) -> str:
    """`url` without path; raises BadConfiguration on one that cannot or must not be used."""
    remedy = "write for example https://broker.example.org"
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise BadConfiguration(f"{url!r} of {source} is not a URL", remedy) from None
    if parts.scheme not in ("http", "https") or not host:
        raise BadConfiguration(f"{url!r} of {source} is not an https URL", remedy)
    if parts.username or parts.query or parts.fragment:
        raise BadConfiguration(f"the URL of {source} says more than host and port", remedy)
    if parts.path.rstrip("/") not in ("", "/v1"):
        raise BadConfiguration(f"the URL of {source} has a path", remedy)
    if parts.scheme == "http" and host not in LOOPBACK:
        # The token would cross the network in the clear.
        raise BadConfiguration(f"{url!r} of {source} is not encrypted", "use https")
    return f"{parts.scheme}://{parts.netloc}"
