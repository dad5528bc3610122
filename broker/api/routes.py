"""Routes as data: one table drives the router, the checks before a handler, and OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from broker.api.auth import Bearer, TicketHolder
from broker.api.context import Api
from broker.api.problems import Problem, field_problem, not_found
from broker.api.requests import (
    CYCLE_NAME_PATTERN,
    JOB_ID_PATTERN,
    NAME_PATTERN,
    SHA256_PATTERN,
    TOKEN_ID_PATTERN,
    Query,
    faults,
)
from broker.api.strict_body import parse_json
from broker.api.views import to_json
from broker.control.viewing import Viewer
from federation.jobs import FieldError

JSON = "application/json"
NOBODY = Viewer(subject="anonymous")

Model = TypeVar("Model", bound=BaseModel)


class Access(Enum):
    """Who may call a route."""

    OPEN = "open"
    USER = "user"
    OPERATOR = "operator"
    BLOBS = "blobs"
    """A user's token, or the ticket of an attempt."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One kind of answer: its JSON model, or another media type."""

    text: str
    model: type[BaseModel] | None = None
    media: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BodyOf:
    """The body a route takes. `model` None with JSON means a job spec, checked by its own
    reader; with another media type, raw bytes that the handler reads itself."""

    model: type[BaseModel] | None = None
    media: str = JSON
    optional: bool = False


class Call(NamedTuple):
    """A request that passed the checks of its route."""

    request: web.Request
    api: Api
    viewer: Viewer
    params: Mapping[str, str]
    query: Any = None
    body: Any = None
    raw: bytes = b""
    ticket: TicketHolder | None = None

    @property
    def now_ms(self) -> int:
        """UTC now by the broker's clock."""
        return self.api.services.clock.now_ms()


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    answers: Mapping[int, Answer]
    access: Access = Access.USER
    query: type[Query] | None = None
    body: BodyOf | None = None
    problems: tuple[int, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    """Request headers worth naming: name -> description."""

    def all_problems(self) -> tuple[int, ...]:
        """Every status this route may refuse with."""
        statuses = {400, 503, *self.problems}
        if self.access is not Access.OPEN:
            statuses |= {401, 403}
        if "{" in self.path:
            statuses.add(404)
        if self.body is not None:
            statuses |= {413, 415, 422}
        return tuple(sorted(statuses))

    def aiohttp_handler(self, api: Api) -> Callable[[web.Request], Awaitable[Any]]:
        """What the router calls: authenticate, read and check, handle."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self.handler(await _checked(self, api, request))

        return handle


@dataclass(frozen=True, slots=True)
class PathPart:
    """What may stand for a `{name}` in a path."""

    what: str
    pattern: str
    example: str

    def holds(self, value: str) -> bool:
        """Whether `value` has the form."""
        return re.fullmatch(self.pattern, value, re.ASCII) is not None


PATH_PARTS: Mapping[str, PathPart] = {
    "id": PathPart("job", JOB_ID_PATTERN, "j0000000000000000"),
    "name": PathPart("cluster", NAME_PATTERN, "us-east-1"),
    "tenant": PathPart("tenant", NAME_PATTERN, "default"),
    "dataset": PathPart("dataset", NAME_PATTERN, "imagenet"),
    "policy": PathPart("policy", NAME_PATTERN, "eu-only"),
    "token": PathPart("token", TOKEN_ID_PATTERN, "operator"),
    "cycle": PathPart("stored decision", CYCLE_NAME_PATTERN, "1.1"),
    "sha256": PathPart("blob", SHA256_PATTERN, "0" * 64),
}


async def _checked(route: Route, api: Api, request: web.Request) -> Call:
    viewer, ticket = await _who(route, api, request)
    params = request.match_info
    for name, value in params.items():
        if not PATH_PARTS[name].holds(value):
            raise not_found(PATH_PARTS[name].what, value)
    query = _query(route, request)
    raw, body = b"", None
    if route.body is None:
        await _refuse_body(request)
    elif route.body.media == JSON:
        raw, body = await _json_body(route.body, request)
    return Call(request, api, viewer, params, query, body, raw, ticket)


async def _who(
    route: Route, api: Api, request: web.Request
) -> tuple[Viewer, TicketHolder | None]:
    if route.access is Access.OPEN:
        return NOBODY, None
    header = request.headers.get("Authorization", "")
    if route.access is Access.BLOBS and header.startswith("Ticket "):
        return NOBODY, api.auth.ticket(header)
    holder: Bearer = await api.auth.bearer(header)
    if route.access is Access.OPERATOR and not holder.viewer.operator:
        raise Problem(403, "operators_only", "this needs an operator's token")
    return holder.viewer, None


def _query(route: Route, request: web.Request) -> Query | None:
    if not request.query_string:
        return route.query() if route.query is not None else None
    model = route.query or Query
    known, repeatable = _parameters(model)
    given: dict[str, Any] = {}
    errors: list[FieldError] = []
    for name, value in request.query.items():
        if name not in known:
            errors.append(_unknown_parameter(name, known))
        elif name in repeatable:
            given.setdefault(name, []).append(value)
        elif name in given:
            errors.append(FieldError(name, "", "given twice", "give it once"))
        else:
            given[name] = value
    if not errors:
        try:
            return model.model_validate(given)
        except ValidationError as error:
            errors = faults(error, model)
    raise Problem(400, "bad_query", str(errors[0]), errors)


@cache
def _parameters(model: type[Query]) -> tuple[list[str], frozenset[str]]:
    """The names a query may have, and those that may be repeated."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    lists = (name for name, field in fields.items() if "list" in str(field.annotation))
    return sorted(fields), frozenset(lists)


def _unknown_parameter(name: str, known: list[str]) -> FieldError:
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
    return FieldError(name[:60], "", "unknown query parameter", remedy)


async def _refuse_body(request: web.Request) -> None:
    if request.can_read_body and await request.read():
        raise field_problem(400, "unexpected_body", "body", "takes no body", "send none")


async def _json_body(body: BodyOf, request: web.Request) -> tuple[bytes, Any]:
    raw = await request.read() if request.can_read_body else b""
    if not raw and body.optional and body.model is not None:
        return raw, body.model()
    _check_media(request)
    if not raw:
        raise field_problem(400, "malformed_json", "body", "is empty", "send a JSON object")
    value = parse_json(raw)
    if body.model is None:
        return raw, value
    if not isinstance(value, dict):
        raise field_problem(422, "bad_body", "body", "not an object", "send a JSON object")
    try:
        return raw, body.model.model_validate(value)
    except ValidationError as error:
        errors = faults(error, body.model)
        raise Problem(422, "bad_body", str(errors[0]), errors) from None


def _check_media(request: web.Request) -> None:
    charset = "utf-8"
    given = request.headers.get("Content-Type", "")
    if given == JSON:
        return  # what nearly all send
    media, _, rest = given.partition(";")
    match = re.search(r"charset\s*=\s*\"?([\w-]+)", rest, re.IGNORECASE)
    if match:
        charset = match[1].lower()
    if media.strip().lower() != JSON or charset not in ("utf-8", "utf8", "us-ascii"):
        raise field_problem(
            415,
            "wrong_media_type",
            "Content-Type",
            f"{given[:60] or 'missing'}",
            "send application/json in UTF-8",
        )


def answer(
    status: int, payload: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> web.Response:
    """A JSON response."""
    return web.Response(
        status=status, body=to_json(payload), content_type=JSON, headers=headers
    )
