"""The names by which one port is two doors: `session.<host>` is that of agents' sessions.

Such a name needs no entry in DNS: who dials goes to `<host>` and says the whole name in TLS.
"""

from __future__ import annotations

SESSION_PREFIX = "session."


def is_session_name(name: str) -> bool:
    """Whether a host name, or an address that begins with one, is that of sessions."""
    return name.lower().startswith(SESSION_PREFIX)


def dialled(address: str) -> tuple[str, str]:
    """`host:port` to connect to, and the name to ask for in TLS (empty: the host's own)."""
    if not is_session_name(address):
        return address, ""
    return address[len(SESSION_PREFIX) :], address.rpartition(":")[0]
