"""A generated client against a real server: every route of the OpenAPI document, good and bad
input, and no answer that the document does not describe."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.errors
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from broker.api.openapi import document
from broker.api.table import ROUTES
from tests.integration.api.world import running

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
)


@dataclass
class Server:
    """A server in a thread of its own, and what opens it."""

    url: str
    token: str
    job: str


class _Thread(threading.Thread):
    def __init__(self, tmp: Path) -> None:
        super().__init__(daemon=True)
        self._tmp = tmp
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self.ready = threading.Event()
        self.server: Server | None = None

    def run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        async with running(self._tmp) as world:
            _, body, _ = await world.call("POST", "/v1/jobs", json={"run": "true"})
            self.server = Server(world.url, world.operator, body["id"])
            self.ready.set()
            await self._end.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self.join(10)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    thread = _Thread(tmp_path_factory.mktemp("api"))
    thread.start()
    assert thread.ready.wait(20) and thread.server is not None
    yield thread.server
    thread.stop()


SCHEMA = schemathesis.openapi.from_dict(document(ROUTES, "test"))
# An event stream never ends; it has tests of its own. The operator's token must survive.
LEFT_OUT = {"GET /v1/events", "DELETE /v1/tokens/{token}"}
OPERATIONS = {
    result.ok().label: result.ok()
    for result in SCHEMA.get_all_operations()
    if isinstance(result, Ok) and result.ok().label not in LEFT_OUT
}
EXAMPLES = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("label", OPERATIONS)
def test_the_document_and_the_server_agree(
    label: str, mode: GenerationMode, server: Server
) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}

    @EXAMPLES
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def agree(case: schemathesis.Case[Any]) -> None:
        if mode is GenerationMode.POSITIVE and "id" in (case.path_parameters or {}):
            case.path_parameters["id"] = server.job  # else nearly every call is a 404
        response = case.call(base_url=server.url, headers=headers, timeout=10)
        case.validate_response(response, checks=list(CHECKS), headers=headers)

    try:
        agree()
    except hypothesis.errors.Unsatisfiable:
        pytest.skip(f"{label} takes nothing that could be wrong")


def test_the_broker_is_unharmed(server: Server) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    shown = requests.get(f"{server.url}/v1/jobs/{server.job}", headers=headers, timeout=10)
    assert shown.status_code == 200 and shown.json()["spec"]["run"] == "true"
