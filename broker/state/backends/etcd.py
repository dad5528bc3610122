"""The store in etcd."""

from __future__ import annotations

from collections.abc import Sequence

from broker.state.store import Store
from federation.etcd.client import EtcdClient
from federation.etcd.endpoints import Timeouts, Tls, parse_endpoint


def open_store(
    endpoints: Sequence[str],
    *,
    tls: Tls | None = None,
    server_names: Sequence[str] = (),
    timeouts: Timeouts | None = None,
) -> Store:
    """A store in the etcd cluster at `endpoints` (`host:port` or URLs), connected on first use.

    `server_names`: for each endpoint the name its certificate must bear (empty = its host);
    one name holds for all. Raises ValueError for endpoints that make no sense.
    """
    names = list(server_names) or [""]
    if len(names) == 1:
        names *= len(endpoints)
    if len(names) != len(endpoints):
        raise ValueError(f"{len(endpoints)} endpoints but {len(names)} server names")
    parsed = [
        parse_endpoint(text, server_name=name)
        for text, name in zip(endpoints, names, strict=True)
    ]
    return EtcdClient(parsed, tls, timeouts)
