"""What the session listener asks of the broker around it. Chosen and wired by the app module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.model.fleet import Cache, Capacity, PoolPrice, RoundTrip
from federation.handshake.values import KnownCluster, Offer
from federation.wire import records as pb


class SessionFactsSource(Protocol):
    """The broker as the handshake sees it. Asked at every session and once a minute in each;
    answers come from memory."""

    def known(self, cluster: str) -> KnownCluster | None:
        """What the books say of a cluster, with the last event committed; None: no such one."""

    def ready(self) -> bool:
        """Whether the records have been read; until then a cluster not known may yet be."""

    def leading(self) -> bool:
        """Whether this replica leads now."""

    def epoch(self) -> int:
        """The epoch of this replica's leadership; the last one known where it does not lead."""

    def offer(self) -> Offer:
        """Addresses of all brokers, ticket keys, the API's URL, limits."""

    def leader_address(self) -> str:
        """Session address of the replica that leads; empty where unknown."""


@dataclass(frozen=True, slots=True)
class ReportReaders:
    """How reports are validated. Each raises ValueError for what cannot be right.

    `capacity` takes a report and the receive time (UTC ms), `prices` gives what is good and the
    reasons why the rest was refused.
    """

    capacity: Callable[[pb.CapacityReport, int], Capacity]
    prices: Callable[[pb.PriceReport], tuple[tuple[PoolPrice, ...], tuple[str, ...]]]
    round_trips: Callable[[pb.LatencyReport], tuple[RoundTrip, ...]]
    cache: Callable[[pb.CacheReport, int], Cache] | None = None  # None: nobody asks
