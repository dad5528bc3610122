"""Ray's REST interface: jobs and nodes, as its dashboard serves them (Ray 2.9 and newer).

Nothing of Ray is imported here: what a cluster runs is its own affair.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import aiohttp

BODY_BYTES_MAX = 64 * 2**20
SAID_CHARS_MAX = 300
TAG, DIRECTORY, INDICES = "tradewind", "tradewind-directory", "tradewind-indices"
"""Metadata of our jobs: whose it is, where its files lie, which elements it has."""
ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
"""https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html"""


class RaySilent(Exception):
    """Ray did not answer, or not what it should: nothing is known about the effect."""


class RayRefused(Exception):
    """Ray answered, and will not do it; the text is its own, shortened."""


@dataclass(frozen=True, slots=True)
class RayJob:
    """A job as Ray tells of it. `exit_code` is None where no program ended, `node` is
    where it runs."""

    name: str
    status: str
    message: str = ""
    exit_code: int | None = None
    node: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.status in ENDED


@dataclass(slots=True)
class RayApi:
    """Asks one cluster; every method may raise RaySilent. `url` is that of its dashboard; each
    request has `within_s` seconds."""

    url: str
    within_s: float = 30.0
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    _session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Let go of the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def submit(self, body: Mapping[str, Any]) -> None:
        """Hand a job over under the `submission_id` in `body`. Raises RayRefused where Ray says
        that the request is wrong; anything else leaves open whether the job is there."""
        status, text = await self._ask("POST", "/api/jobs/", body)
        if status >= 500:  # also for a name that is taken: look before and after
            raise RaySilent(f"Ray answers {status}: {_short(text)}")
        if status >= 400:
            raise RayRefused(_short(text))

    async def job(self, name: str) -> RayJob | None:
        """One job by its submission id."""
        status, text = await self._ask("GET", f"/api/jobs/{name}")
        if status == 404:
            return None
        return _job(_parsed(status, text))

    async def jobs(self) -> tuple[RayJob, ...]:
        """All jobs that were submitted by name, ended ones as long as Ray keeps them."""
        found = _parsed(*await self._ask("GET", "/api/jobs/"))
        return tuple(_job(each) for each in found if each.get("submission_id"))

    async def stop(self, name: str) -> None:
        """Ask a job to stop; Ray kills what does not within seconds. Unknown: nothing."""
        status, text = await self._ask("POST", f"/api/jobs/{name}/stop")
        if status >= 500:
            raise RaySilent(f"Ray answers {status}: {_short(text)}")

    async def nodes(self) -> list[dict[str, Any]]:
        """Every node it knows, dead ones too: `node_id`, `state`, `resources_total`, `labels`."""
        answer = _parsed(*await self._ask("GET", "/api/v0/nodes?detail=1&limit=10000"))
        return list(answer["data"]["result"]["result"])

    async def used(self) -> dict[str, dict[str, tuple[float, float]]]:
        """(used, total) by node and resource, of the nodes that report."""
        answer = _parsed(*await self._ask("GET", "/api/cluster_status?format=0"))
        report = answer["data"]["clusterStatus"]["loadMetricsReport"]
        by_node = report.get("usageByNode") or {}
        return {
            node: {name: (pair[0], pair[1]) for name, pair in usage.items()}
            for node, usage in by_node.items()
        }

    async def version(self) -> str:
        """Ray's version."""
        return str(_parsed(*await self._ask("GET", "/api/version"))["ray_version"])

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, str]:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self.within_s)
            self._session = aiohttp.ClientSession(timeout=timeout, headers=dict(self.headers))
        try:
            async with self._session.request(method, self.url + path, json=body) as answer:
                raw = await answer.content.read(BODY_BYTES_MAX)
                return answer.status, raw.decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError) as problem:
            why = str(problem) or type(problem).__name__
            raise RaySilent(f"Ray at {self.url} does not answer: {why}") from problem


def _parsed(status: int, text: str) -> Any:
    if status >= 400:
        raise RaySilent(f"Ray answers {status}: {_short(text)}")
    try:
        return json.loads(text)
    except ValueError as problem:
        raise RaySilent(f"Ray answers no JSON: {_short(text)}") from problem


def _job(said: Mapping[str, Any]) -> RayJob:
    code = said.get("driver_exit_code")
    return RayJob(
        name=str(said.get("submission_id") or ""),
        status=str(said.get("status", "")),
        message=_short(str(said.get("message") or "")),
        exit_code=code if isinstance(code, int) else None,
        node=str(said.get("driver_node_id") or ""),
        started_ms=int(said.get("start_time") or 0),
        ended_ms=int(said.get("end_time") or 0),
        metadata={str(k): str(v) for k, v in (said.get("metadata") or {}).items()},
    )


def _short(text: str) -> str:
    """The last line that says something: of a traceback the error itself."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else "")[:SAID_CHARS_MAX]
