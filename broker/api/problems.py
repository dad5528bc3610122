"""Errors as RFC 9457 problem documents, and the one table from exceptions to them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from broker.control.enrolment_rules import InvitationError
from broker.control.policy_book import VersionConflict
from broker.control.policy_text import InvalidPolicy, PolicyFault
from broker.control.submission import (
    BatchTooLarge,
    IdempotencyConflict,
    OutcomeUnknown,
)
from broker.control.submitted_specs import TenantRefused
from broker.control.viewing import RegionUnreachable
from broker.feedback.ports import (
    BlobCorrupt,
    BlobMismatch,
    BlobNotFound,
    BlobTooLarge,
    FeedbackUnavailable,
)
from federation.jobs import FieldError, InvalidJob
from federation.kv import AmbiguousCommit, StoreUnavailable

PROBLEM_JSON = "application/problem+json"
_TYPE = "urn:tradewind:problem:"


class Problem(Exception):
    """An answer that is not what was asked for: a closed `code`, one line, faults by field."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})

    def document(self, request_id: str) -> dict[str, Any]:
        """The problem as JSON."""
        return {
            "type": _TYPE + self.code,
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "errors": [_fault_json(e) for e in self.errors],
            "request_id": request_id,
        }

    def response(self, request_id: str) -> web.Response:
        """The problem as an HTTP response."""
        return web.Response(
            status=self.status,
            body=json.dumps(self.document(request_id)).encode(),
            content_type=PROBLEM_JSON,
            headers=self.headers,
        )


def _fault_json(fault: FieldError) -> dict[str, Any]:
    told: dict[str, Any] = {
        "path": fault.path,
        "value": fault.value,
        "problem": fault.problem,
        "remedy": fault.remedy,
    }
    if isinstance(fault, PolicyFault):
        told |= {"line": fault.line, "column": fault.column}
    return told


def field_problem(
    status: int, code: str, path: str, problem: str, remedy: str, value: str = ""
) -> Problem:
    """A problem with one field."""
    fault = FieldError(path, value, problem, remedy)
    return Problem(status, code, str(fault), [fault])


def not_found(what: str, name: str) -> Problem:
    """404 for something that is not there, or not this viewer's."""
    return Problem(404, "not_found", f"no {what} {name[:80]}")


def unavailable(code: str, text: str, retry_after_s: float = 1.0) -> Problem:
    """503 with Retry-After."""
    wait_s = str(max(1, math.ceil(retry_after_s)))
    return Problem(503, code, text, headers={"Retry-After": wait_s})


def _unreadable(why: str) -> Problem:
    problem = " ".join(why.split())[:200] or "cannot be read"
    return field_problem(400, "malformed_request", "body", problem, "send it whole and unencoded")


def _invalid_job(error: InvalidJob) -> Problem:
    first = str(error.errors[0])
    more = len(error.errors) - 1
    detail = first if not more else f"{first} (and {more} more)"
    return Problem(422, "invalid_job", detail, error.errors)


def _invalid_policy(error: InvalidPolicy) -> Problem:
    more = len(error.faults) - 1
    detail = str(error.faults[0]) + (f" (and {more} more)" if more else "")
    return Problem(422, "invalid_policy", detail, error.faults)


def _no_store(error: StoreUnavailable) -> Problem:
    code = "outcome_unknown" if isinstance(error, OutcomeUnknown) else "store_unavailable"
    return unavailable(code, f"the state store does not answer: {error}", error.retry_after_s)


_TABLE: tuple[tuple[type[Exception], Callable[[Any], Problem]], ...] = (
    (InvalidJob, _invalid_job),
    (InvalidPolicy, _invalid_policy),
    (VersionConflict, lambda e: Problem(409, "version_conflict", str(e))),
    (TenantRefused, lambda e: Problem(403, "tenant_refused", str(e))),
    (IdempotencyConflict, lambda e: field_problem(
        422, "idempotency_conflict", "Idempotency-Key", str(e), "use a new key")),
    (BatchTooLarge, lambda e: Problem(413, "batch_too_large", str(e))),
    (StoreUnavailable, _no_store),
    (AmbiguousCommit, lambda e: unavailable(
        "outcome_unknown", f"the state store did not say whether this was done: {e}")),
    (RegionUnreachable, lambda e: unavailable(
        "region_unreachable", str(e), e.retry_after_s)),
    (FeedbackUnavailable, lambda e: unavailable(
        "history_unavailable", f"the ledger or its disk does not answer: {e}")),
    (BlobNotFound, lambda e: not_found("blob", e.sha256)),
    (BlobMismatch, lambda e: field_problem(
        400, "blob_mismatch", "sha256", str(e), f"PUT it as /v1/blobs/{e.actual}")),
    (BlobTooLarge, lambda e: field_problem(
        413, "blob_too_large", "body", str(e), "send it in parts of at most 64 MiB")),
    (BlobCorrupt, lambda e: Problem(409, "blob_corrupt", str(e))),
    (InvitationError, lambda e: Problem(409, "invitation_refused", str(e))),
    (HttpProcessingError, lambda e: _unreadable(e.message or "")),
    (web.RequestPayloadError, lambda e: _unreadable(str(e))),
)  # fmt: skip


def problem_of(error: Exception) -> Problem | None:
    """The problem that tells of an error we know; None for one that should not have happened."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, web.HTTPException):
        return _http_problem(error)
    return next((make(error) for kind, make in _TABLE if isinstance(error, kind)), None)


def _http_problem(error: web.HTTPException) -> Problem:
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
    texts = {
        404: ("not_found", "no such path; GET /v1/openapi.json lists them all"),
        405: ("method_not_allowed", f"this path takes {headers.get('Allow', 'other methods')}"),
        413: ("body_too_large", "the body is larger than 1 MiB; send less, or in parts"),
    }
    code, detail = texts.get(error.status, ("http_error", error.reason or "refused"))
    return Problem(error.status, code, detail, headers=headers)
