"""Which HTTP proxy (CONNECT) leads to the broker: the setting, or the usual environment.

The setting `proxy` counts for every host; empty, it says that there is none. Where it is not
given, HTTPS_PROXY and NO_PROXY (also in lower case, which goes first) hold, and this machine
itself is never looked for behind a proxy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from yarl import URL


@dataclass(frozen=True, slots=True)
class Proxies:
    """`url` of the proxy, empty for none; `spared` are hosts as NO_PROXY lists them. `always`:
    for every host, whatever it is."""

    url: str = ""
    spared: str = ""
    always: bool = False

    def to(self, host: str) -> str:
        """The proxy that leads to a host, empty for none."""
        direct = _here(host) or any(_spares(entry, host) for entry in self.spared.split(","))
        return "" if direct and not self.always else self.url

    def to_url(self, url: str) -> str:
        """The same for the host of a URL."""
        return self.to(URL(url).host or "")


def proxies(setting: str | None, environ: Mapping[str, str]) -> Proxies:
    """From the setting (None = not given) and the environment."""
    if setting is not None:
        return Proxies(setting, always=True)
    named = _named(environ, "https_proxy")
    if named and "://" not in named:
        named = f"http://{named}"
    return Proxies(named, _named(environ, "no_proxy"))


def _named(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _spares(entry: str, host: str) -> bool:
    """Whether an entry of NO_PROXY covers a host: itself, all below it, or `*` for everything."""
    name = entry.strip().partition(":")[0].lstrip(".").lower()
    bare = host.rstrip(".").lower()
    return bool(name) and (name == "*" or bare == name or bare.endswith(f".{name}"))


def _here(host: str) -> bool:
    bare = host.strip("[]").rstrip(".").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return ip_address(bare).is_loopback
    except ValueError:
        return False
