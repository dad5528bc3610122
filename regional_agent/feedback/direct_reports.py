"""Reports written straight into etcd by the agent, for sites of the federation's own operator."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from federation.etcd.client import EtcdClient
from federation.etcd.endpoints import Endpoint, Tls, parse_endpoint
from federation.kv import Put, StoreError, Txn
from federation.wire import records
from federation.wire import session as pb

SCHEMA = 1
REPORTS = "/tradewind/v1/reports"
_log = logging.getLogger(__name__)


class ReportSink(Protocol):
    """Where reports go."""

    async def put(self, report: pb.Report) -> None:
        """Take a report; one that cannot be delivered now may be lost, the next one comes."""


class EtcdSink:
    """The agent's certificate (`agent:<cluster>`) is its user, whose role is to write its own
    reports and nothing else: hence a plain put, for any compare would have to read."""

    def __init__(self, cluster: str, endpoints: Sequence[Endpoint], tls: Tls) -> None:
        self._cluster = cluster
        self._endpoints = tuple(endpoints)
        self._client = EtcdClient(self._endpoints, tls)
        self._failing = False

    async def put(self, report: pb.Report) -> None:
        """See the port; `received_ms` 0 says that no broker saw it."""
        kind = report.WhichOneof("what") or ""
        body = getattr(report, kind)
        kept = records.ReportEnvelope(schema=SCHEMA, generation=body.generation, **{kind: body})
        put = Put(f"{REPORTS}/{self._cluster}/{kind}", kept.SerializeToString())
        try:
            await self._client.txn(Txn(then=(put,)))
        except StoreError as problem:
            if not self._failing:
                _log.warning("reports do not reach etcd: %s", problem)
            self._failing = True
        else:
            self._failing = False

    async def renewed(self, tls: Tls) -> None:
        """Use another certificate from now on."""
        old, self._client = self._client, EtcdClient(self._endpoints, tls)
        await old.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def etcd_sink(cluster: str, endpoints: Sequence[str], tls: Tls) -> EtcdSink:
    """A sink for these endpoints. Raises ValueError for endpoints that make no sense."""
    return EtcdSink(cluster, [parse_endpoint(text) for text in endpoints], tls)
