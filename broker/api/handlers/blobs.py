"""Blobs: code in, results out, by content. Knowing a digest opens nothing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

from aiohttp import web

from broker.api.auth import unauthorised
from broker.api.handlers.jobs import may_act_for
from broker.api.problems import Problem, not_found
from broker.api.routes import Call, answer
from broker.control.admission_rules import blobs_named
from broker.feedback.ports import (
    MAX_BLOB_BYTES,
    BlobCorrupt,
    BlobNotFound,
    BlobStat,
    BlobTooLarge,
    FeedbackUnavailable,
)
from broker.state import keys
from federation.jobs import parse_job_spec
from federation.wire import records as pb

CHUNK_BYTES = 256 * 1024
_RANGE = re.compile(r"bytes=([0-9]{1,15})-", re.ASCII)


async def put(call: Call) -> web.Response:
    """PUT /v1/blobs/{sha256}."""
    sha256 = call.params["sha256"]
    if call.ticket is not None:
        if call.ticket.attempt is None:
            raise unauthorised("a ticket to prepare brings nothing back")
        tenant = call.ticket.ticket.tenant
    else:
        tenant = may_act_for(call.viewer, call.query.tenant)
    if (call.request.content_length or 0) > MAX_BLOB_BYTES:
        raise BlobTooLarge(sha256, MAX_BLOB_BYTES)
    blobs = call.api.services.blobs
    there = await blobs.may_read(sha256, tenant)
    stat = await blobs.put(sha256, _chunks(call.request), now_ms=call.now_ms)
    await blobs.grant(sha256, tenant)
    return answer(200 if there else 201, {"sha256": sha256, "size_bytes": stat.size_bytes})


async def _chunks(request: web.Request) -> AsyncIterator[bytes]:
    async for chunk in request.content.iter_chunked(CHUNK_BYTES):
        yield chunk


async def head(call: Call) -> web.StreamResponse:
    """HEAD /v1/blobs/{sha256}."""
    stat = await _readable(call)
    response = _blob_response(200, stat.size_bytes)
    await response.prepare(call.request)
    return response


async def get(call: Call) -> web.StreamResponse:
    """GET /v1/blobs/{sha256}, from an offset where `Range: bytes=N-` asks for it."""
    stat = await _readable(call)
    offset = _offset(call.request, stat)
    response = _blob_response(206 if offset else 200, stat.size_bytes - offset)
    if offset:
        last = stat.size_bytes - 1
        response.headers["Content-Range"] = f"bytes {offset}-{last}/{stat.size_bytes}"
    await response.prepare(call.request)
    try:
        async for chunk in call.api.services.blobs.open(stat.sha256, offset=offset):
            await response.write(chunk)
    except (BlobCorrupt, BlobNotFound, FeedbackUnavailable) as error:
        # The status is out: only a broken connection still tells the reader.
        if call.request.transport is not None:
            call.request.transport.abort()
        raise ConnectionResetError(str(error)) from error
    await response.write_eof()
    return response


def _blob_response(status: int, size_bytes: int) -> web.StreamResponse:
    response = web.StreamResponse(
        status=status,
        headers={
            "Content-Type": "application/octet-stream",
            "X-Content-Type-Options": "nosniff",
            "Accept-Ranges": "bytes",
        },
    )
    response.content_length = size_bytes
    return response


def _offset(request: web.Request, stat: BlobStat) -> int:
    match = _RANGE.fullmatch(request.headers.get("Range", ""))
    if match is None:
        return 0
    offset = int(match[1])
    if offset and offset >= stat.size_bytes:
        headers = {"Content-Range": f"bytes */{stat.size_bytes}"}
        raise Problem(416, "range_beyond_end", "the range begins after the end", (), headers)
    return offset


async def _readable(call: Call) -> BlobStat:
    """The blob, if the caller may read it; Problem 404 otherwise."""
    sha256, blobs = call.params["sha256"], call.api.services.blobs
    if call.ticket is not None:
        allowed = sha256 in _inputs(call, call.ticket.ticket.job)
    elif call.viewer.operator:
        allowed = True
    else:
        allowed = any([await blobs.may_read(sha256, tenant) for tenant in call.viewer.tenants])
    stat = await blobs.stat(sha256) if allowed else None
    if stat is None:
        raise not_found("blob", sha256)
    return stat


def _inputs(call: Call, job_id: str) -> set[str]:
    """Digests of what the ticket's job starts with."""
    value = call.api.services.projection.value(keys.spec(job_id))
    if value is None:
        return set()
    return set(blobs_named(parse_job_spec(json.loads(pb.SpecRecord.FromString(value).spec))))


async def missing(call: Call) -> web.Response:
    """POST /v1/blobs/missing."""
    tenant = may_act_for(call.viewer, call.query.tenant)
    asked = list(dict.fromkeys(call.body.sha256))
    there = await call.api.services.blobs.readable(asked, tenant)
    return answer(200, {"missing": [sha256 for sha256 in asked if sha256 not in there]})
