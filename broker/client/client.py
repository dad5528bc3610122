"""The client: one method per thing the API does. Answers are the API's JSON, as dictionaries."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from broker.client.documents import Document
from broker.client.documents import mapping as _mapping
from broker.client.documents import mappings as _mappings
from broker.client.documents import part as _part
from broker.client.errors import BadFile, Garbled, Refused
from broker.client.operating import Operating
from broker.client.replies import Answer
from broker.client.transport import Request, Transport
from federation.environment import Ids

if TYPE_CHECKING:
    from broker.client.upload import Blob, Prepared
    from federation.jobs import JobFile, JobSpec


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job the broker has durably. `replayed`: it was there already, under this key."""

    id: str
    job: Document
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class LogRange:
    """Bytes of a log: where they start, how long the log is as far as known, and whether it will
    grow no more."""

    data: bytes
    offset: int
    total: int | None
    complete: bool


class Client(Operating):
    """A broker's API. Every method raises Refused (its answer), NotReachable, or Garbled."""

    def __init__(self, transport: Transport, ids: Ids) -> None:
        self.transport = transport
        self._ids = ids

    async def __aenter__(self) -> Client:
        await self.transport.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.transport.__aexit__(*exc)

    # Jobs ---------------------------------------------------------------------------------------

    def new_key(self) -> str:
        """An Idempotency-Key nobody else uses."""
        return self._ids.token_bytes(16).hex()

    async def submit(
        self,
        spec: JobSpec | Mapping[str, Any],
        idempotency_key: str | None = None,
        traceparent: str = "",
    ) -> Submitted:
        """Create a job. The same key with the same spec makes one job, however often it is sent.

        `traceparent` (W3C) makes the job part of the caller's trace.
        """
        key = idempotency_key or self.new_key()
        answer = await self._post("/jobs", _plain(spec), key=key, traceparent=traceparent)
        document = _mapping(answer)
        job = document.get("job")
        job_id = document.get("id") or (job.get("id") if isinstance(job, dict) else None)
        if not isinstance(job_id, str):
            raise Garbled("the answer to a submission names no job")
        replayed = answer.headers.get("Idempotent-Replayed", "").lower() == "true"
        return Submitted(job_id, job if isinstance(job, dict) else {}, replayed)

    async def submit_batch(
        self,
        specs: Sequence[JobSpec | Mapping[str, Any]],
        idempotency_key: str | None = None,
        traceparent: str = "",
    ) -> list[str]:
        """Create up to 1,000 jobs, all or none; their ids in order. `traceparent` as `submit`."""
        body = {"jobs": [_plain(spec) for spec in specs]}
        key = idempotency_key or self.new_key()
        answer = await self._post("/jobs/batch", body, key=key, traceparent=traceparent)
        ids = _mapping(answer).get("ids")
        if not isinstance(ids, list):
            raise Garbled("the answer to a batch names no jobs")
        return [str(job_id) for job_id in ids]

    async def submit_file(
        self, job: JobFile, base: Path, idempotency_key: str | None = None
    ) -> Submitted:
        """Upload what `job` names on this machine (relative to `base`) and create it."""
        from broker.client.upload import prepare_job

        prepared = prepare_job(job, base)
        await self.upload(prepared)
        return await self.submit(prepared.spec, idempotency_key)

    async def jobs(
        self, *, limit: int = 100, cursor: str = "", **filters: str | None
    ) -> Document:
        """One page of jobs, newest first: {jobs, next_cursor, notes}.

        Filters: tenant, phase, outcome, name, label, cluster.
        """
        query = {"limit": str(limit), "cursor": cursor, **filters}
        return await self._get("/jobs", query)

    async def job(self, job_id: str) -> Document:
        """One job with its attempts and spec."""
        return await self._get(f"/jobs/{_part(job_id)}")

    async def cancel(self, job_id: str, why: str = "") -> Document:
        """Have a job stopped; durable when this returns. Raises Refused (409) when it has ended."""
        return await self._intent(f"/jobs/{_part(job_id)}/cancel", {"why": why} if why else {})

    async def hold(self, job_id: str) -> Document:
        """Keep a job from starting until it is released."""
        return await self._intent(f"/jobs/{_part(job_id)}/hold", {})

    async def release(self, job_id: str) -> Document:
        """Let a held job start."""
        return await self._intent(f"/jobs/{_part(job_id)}/release", {})

    async def set_priority(self, job_id: str, priority: int) -> Document:
        """Change a job's priority."""
        body = {"priority": priority}
        request = Request("PATCH", f"/jobs/{_part(job_id)}", document=body)
        return _mapping(await self.transport.send(request))

    async def explain(self, job_id: str) -> Document:
        """Why a job is where it is, or why it waits: the candidate table and what would help."""
        return await self._get(f"/jobs/{_part(job_id)}/explain")

    async def plan(self, spec: JobSpec | Mapping[str, Any]) -> Document:
        """Where a job would go now. Nothing is stored."""
        return _mapping(await self._post("/plan", _plain(spec)))

    async def log(
        self, job_id: str, *, offset: int = 0, stream: str = "output", **which: str | None
    ) -> LogRange:
        """Bytes of a log from `offset`; `task` and `attempt` (its number) choose which."""
        query = {"stream": stream, "offset": str(offset), **which}
        path = f"/jobs/{_part(job_id)}/logs"
        headers = {"Accept": "application/octet-stream"}
        answer = await self.transport.send(Request("GET", path, _query(query), headers))
        return log_range(answer, offset)

    async def outputs(self, job_id: str) -> list[Document]:
        """The results that came back: {path, sha256, size_bytes, mode, attempt, task}."""
        return _mappings((await self._get(f"/jobs/{_part(job_id)}/outputs")).get("outputs"))

    # Blobs --------------------------------------------------------------------------------------

    async def upload(
        self, prepared: Prepared, progress: Callable[[Blob], None] | None = None
    ) -> None:
        """Send the blobs of a job that the broker does not have. Raises BadFile too."""
        tenant = prepared.spec.tenant or ""
        missing = await self.missing_blobs([blob.sha256 for blob in prepared.blobs], tenant)
        for blob in prepared.blobs:
            if blob.sha256 in missing:
                if progress:
                    progress(blob)
                await self.put_blob(blob, tenant)

    async def missing_blobs(self, digests: Sequence[str], tenant: str = "") -> set[str]:
        """Those of `digests` the broker does not have for that tenant (empty = our own)."""
        if not digests:
            return set()
        body = {"sha256": list(digests)}
        request = Request("POST", "/blobs/missing", _query({"tenant": tenant}), document=body)
        missing = _mapping(await self.transport.send(request)).get("missing")
        return {str(digest) for digest in missing} if isinstance(missing, list) else set(digests)

    async def put_blob(self, blob: Blob, tenant: str = "") -> None:
        """Send one blob, at most 64 MiB, for that tenant (empty = our own)."""
        request = Request(
            "PUT",
            f"/blobs/{_part(blob.sha256)}",
            _query({"tenant": tenant}),
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Length": str(blob.size_bytes),
            },
            open_body=blob.open,
        )
        try:
            await self.transport.send(request)
        except Refused as refused:
            if refused.problem.status == 400 and blob.path is not None:
                raise BadFile(f"{blob.path} changed while it was sent", "send it again") from None
            raise

    async def get_blob(self, digest: str, into: IO[bytes]) -> int:
        """Write a blob to `into`, checked against its hash; its size. Raises Garbled."""
        hasher, size_bytes = hashlib.sha256(), 0
        headers = {"Accept": "application/octet-stream"}
        path = f"/blobs/{_part(digest)}"
        async with self.transport.open(Request("GET", path, headers=headers)) as response:
            async for chunk in self.transport.chunks(response):
                hasher.update(chunk)
                into.write(chunk)
                size_bytes += len(chunk)
        if hasher.hexdigest() != digest:
            raise Garbled(f"blob {digest[:12]} arrived damaged", "fetch it again")
        return size_bytes

    # The federation -----------------------------------------------------------------------------

    async def clusters(self) -> list[Document]:
        """All clusters with their pools."""
        return _mappings((await self._get("/clusters")).get("clusters"))

    async def cluster(self, name: str) -> Document:
        """One cluster."""
        return await self._get(f"/clusters/{_part(name)}")

    async def invite(self, name: str, region: str, ttl: str | None = None) -> Document:
        """A token for a new site: {token, command, expires_at}. For operators."""
        body = {"name": name, "region": region, **({"ttl": ttl} if ttl else {})}
        return _mapping(await self._post("/clusters/invite", body))

    async def drain(self, name: str, deadline: str | None = None) -> Document:
        """Send a cluster no more work; what still runs there at the deadline is ended."""
        body = {"deadline": deadline} if deadline else {}
        return await self._intent(f"/clusters/{_part(name)}/drain", body)

    async def remove(self, name: str) -> Document:
        """Take a cluster out of the federation and revoke its certificate."""
        return await self._intent(f"/clusters/{_part(name)}/remove", {})

    async def prices(self) -> list[Document]:
        """Prices per pool, with source and age."""
        return _mappings((await self._get("/prices")).get("prices"))

    async def latency(self) -> Document:
        """Round trips between regions: {regions, round_trips}."""
        return await self._get("/latency")

    async def status(self) -> Document:
        """The federation in a few numbers."""
        return await self._get("/status")

    async def usage(self, **filters: str | None) -> Document:
        """What was used and paid; filters tenant, from, to."""
        return await self._get("/usage", filters)

    async def policies(self) -> Document:
        """The routing policies in force: {policies, unreadable}."""
        return await self._get("/policies")

    async def policy(self, name: str, version: int | None = None) -> Document:
        """One version of a policy, the one in force by default."""
        query = {"version": str(version) if version else None}
        return await self._get(f"/policies/{_part(name)}", query)

    async def policy_history(self, name: str) -> Document:
        """The versions of a policy, newest first: {name, versions}."""
        return await self._get(f"/policies/{_part(name)}/history")

    async def apply_policy(self, name: str, source: str, why: str = "") -> Document:
        """Put a policy's YAML in force; the same text again changes nothing. For operators."""
        body = {"source": source, **({"why": why} if why else {})}
        request = Request("PUT", f"/policies/{_part(name)}", document=body)
        return _mapping(await self.transport.send(request))

    async def roll_back_policy(self, name: str, to: int, why: str = "") -> Document:
        """Bring an older version's text back as a new version. For operators."""
        body = {"to": to, **({"why": why} if why else {})}
        path = f"/policies/{_part(name)}/rollback"
        return _mapping(await self._post(path, body, repeatable=True))

    async def test_policy(self, source: str) -> Document:
        """Which jobs a policy would move and what that costs; nothing is stored."""
        body = {"source": source}
        return _mapping(await self._post("/policies/test", body, repeatable=True))

    async def whoami(self) -> Document:
        """Who the token says we are."""
        return await self._get("/whoami")

    async def version(self) -> Document:
        """The broker's version."""
        return await self._get("/version")

    # Requests -----------------------------------------------------------------------------------

    async def _get(self, path: str, query: Mapping[str, str | None] | None = None) -> Document:
        return _mapping(await self.transport.send(Request("GET", path, _query(query or {}))))

    async def _post(
        self, path: str, document: object, *, key: str | None = None, repeatable: bool = False,
        traceparent: str = "",
    ) -> Answer:  # fmt: skip
        headers = {"Idempotency-Key": key} if key else {}
        if traceparent:
            headers["traceparent"] = traceparent
        safe = repeatable or bool(key) or path == "/plan"
        request = Request("POST", path, headers=headers, document=document, repeatable=safe)
        return await self.transport.send(request)

    async def _intent(self, path: str, document: Document) -> Document:
        # Saying a second time that a job shall stop changes nothing: safe to repeat.
        # Nothing to say is said by no body at all.
        return _mapping(await self._post(path, document or None, repeatable=True))

    def events(self, query: Mapping[str, str | None], last_id: str = "") -> Request:
        """The request that opens the event stream."""
        headers = {"Accept": "text/event-stream"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        return Request("GET", "/events", _query(query), headers)


async def all_jobs(
    client: Client, limit: int, **filters: str | None
) -> AsyncIterator[tuple[list[Document], list[str]]]:
    """Pages of (jobs, notes) until `limit` jobs came, newest first."""
    cursor, left = "", limit
    while left > 0:
        page = await client.jobs(limit=min(left, 500), cursor=cursor, **filters)
        jobs = _mappings(page.get("jobs"))[:left]
        notes = page.get("notes")
        yield jobs, [str(note) for note in notes] if isinstance(notes, list) else []
        left -= len(jobs)
        following = page.get("next_cursor")
        if not following or not isinstance(following, str) or following == cursor:
            return
        cursor = following


def log_range(answer: Answer, asked: int) -> LogRange:
    """The piece of a log in `answer`, whose headers may be missing."""
    offset = _whole(answer.headers.get("X-Log-Offset"), asked)
    end = offset + len(answer.body)
    told = _whole(answer.headers.get("X-Log-Total"), -1)
    total = max(told, end) if told >= 0 else None
    complete = answer.headers.get("X-Log-Complete", "").strip().lower() in ("true", "1")
    return LogRange(answer.body, offset, total, complete)


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else default


def _plain(spec: JobSpec | Mapping[str, Any]) -> Document:
    if isinstance(spec, Mapping):
        return dict(spec)
    dumped: Document = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return dumped


def _query(query: Mapping[str, str | None]) -> dict[str, str]:
    return {key.rstrip("_"): value for key, value in query.items() if value}
