"""What only a real etcd can show: a batch is one transaction, and keys hold over a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.state import keys
from broker.state.backends.etcd import open_store
from tests.etcd_server import EtcdServer, require_binary
from tests.integration.api.world import running

pytestmark = pytest.mark.etcd


async def test_a_thousand_jobs_of_a_kilobyte_are_one_revision(tmp_path: Path) -> None:
    server = EtcdServer(require_binary()).start()
    try:
        store = open_store(server.urls)
        async with running(tmp_path, store=store) as world:
            jobs = [{"run": "x" * 900, "name": f"n{n}"} for n in range(1000)]
            headers = {"Idempotency-Key": "b"}
            call = ("POST", "/v1/jobs/batch")
            status, body, _ = await world.call(*call, json={"jobs": jobs}, headers=headers)
            assert status == 201 and len(set(body["ids"])) == 1000
            page = await store.range(keys.JOBS)
            assert len({kv.mod_revision for kv in page.kvs}) == 1 and len(page.kvs) == 1000
            for _ in range(100):
                if len(world.services.projection.job_ids()) == 1000:
                    break
                await asyncio.sleep(0.05)
            again = await world.call(*call, json={"jobs": jobs}, headers=headers)
            assert again[0] == 200 and again[1]["ids"] == body["ids"]
    finally:
        server.stop()


async def test_the_same_key_makes_one_job_also_when_the_broker_is_another(
    tmp_path: Path,
) -> None:
    server = EtcdServer(require_binary()).start()
    try:
        ids = set()
        token = ""
        for life in ("first", "second"):
            store = open_store(server.urls)
            async with running(tmp_path / life, store=store, operator=token) as world:
                token = world.operator
                status, body, _ = await world.call(
                    "POST", "/v1/jobs", json={"run": "true"}, headers={"Idempotency-Key": "k"}
                )
                assert status == (201 if life == "first" else 200)
                ids.add(body["id"])
        assert len(ids) == 1
    finally:
        server.stop()
