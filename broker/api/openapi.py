"""The OpenAPI 3.1 document, made from the table of routes and the models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from broker.api.answers import ProblemView
from broker.api.problems import PROBLEM_JSON
from broker.api.requests import BatchBody, Query
from broker.api.routes import JSON, PATH_PARTS, Access, Answer, BodyOf, Route
from federation.jobs import JobSpec

_REF = "#/components/schemas/{model}"
_SHORT_FORMS = ("outputs", "depends_on")
_EXAMPLE = {
    "name": "hello",
    "run": "echo hello",
    "resources": {"cpus": 1, "memory": "1GiB"},
    "max_runtime": "10m",
}
_SECURITY: Mapping[Access, list[dict[str, list[str]]]] = {
    Access.OPEN: [],
    Access.USER: [{"token": []}],
    Access.OPERATOR: [{"token": []}],
    Access.BLOBS: [{"token": []}, {"ticket": []}],
}


def document(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """The whole document as JSON."""
    routes = tuple(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    paths["/v1/openapi.json"] = {"get": _own_operation()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tradewind",
            "version": version,
            "description": "Submit a job once; it runs where it should in the federation.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(routes),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "tw_<id>_<secret>"},
                "ticket": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "Ticket <base64url>: an agent, for one attempt.",
                },
            },
        },
    }


def _own_operation() -> dict[str, Any]:
    return {
        "summary": "This document",
        "operationId": "openapi",
        "tags": ["broker"],
        "security": [],
        "responses": {
            "200": {"description": "OpenAPI 3.1", "content": {JSON: {"schema": {"type": "object"}}}}
        },
    }


# Operations ---------------------------------------------------------------------------------------


def _operation(route: Route) -> dict[str, Any]:
    answers = {str(status): _response(found) for status, found in route.answers.items()}
    problems = {str(status): _problem(status, route) for status in route.all_problems()}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "tags": [route.tag],
        "security": _SECURITY[route.access],
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_headers(route)],
        "responses": answers | problems,
    }
    if route.body is not None:
        operation["requestBody"] = _body(route.body)
    return operation


def _operation_id(route: Route) -> str:
    return f"{route.handler.__module__.rsplit('.', 1)[1]}.{route.handler.__name__}"


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": f"A {part.what}.",
            "schema": {"type": "string", "pattern": part.pattern},
            "example": part.example,
        }
        for name, part in PATH_PARTS.items()
        if f"{{{name}}}" in route.path
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = route.query.model_json_schema(by_alias=True)
    parameters = []
    for name, found in schema.get("properties", {}).items():
        found = _without_null(found)
        parameter = {"name": name, "in": "query", "required": False, "schema": found}
        if "description" in found:
            parameter["description"] = found["description"]
        parameters.append(parameter)
    return parameters


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is left out, never null."""
    options = [o for o in schema.get("anyOf", []) if o.get("type") != "null"]
    kept = {k: v for k, v in schema.items() if k not in ("anyOf", "title", "default")}
    if len(options) == 1:
        kept = {**options[0], **kept}
    if schema.get("default") is not None:
        kept["default"] = schema["default"]
    return kept


def _headers(route: Route) -> list[dict[str, Any]]:
    schemas = {
        "Idempotency-Key": {"type": "string", "pattern": r"^[\x21-\x7e]{1,255}$"},
        "Last-Event-ID": {"type": "string", "pattern": r"^[0-9]{1,18}\.[0-9]{1,9}$"},
    }
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": text,
            "schema": schemas[name],
        }
        for name, text in route.headers.items()
    ]


def _body(body: BodyOf) -> dict[str, Any]:
    if body.media != JSON:
        return {"required": True, "content": {body.media: {"schema": {}}}}
    content: dict[str, Any] = {"schema": _ref(body.model or JobSpec)}
    if body.model is None:
        content["example"] = _EXAMPLE
    elif body.model is BatchBody:
        content["example"] = {"jobs": [_EXAMPLE]}
    return {"required": not body.optional, "content": {JSON: content}}


def _response(found: Answer) -> dict[str, Any]:
    schema = _ref(found.model) if found.model is not None else {}
    response: dict[str, Any] = {
        "description": found.text,
        "content": {found.media: {"schema": schema}},
    }
    if found.headers:
        response["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in found.headers.items()
        }
    return response


def _problem(status: int, route: Route) -> dict[str, Any]:
    response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if route.method != "HEAD":
        response["content"] = {PROBLEM_JSON: {"schema": _ref(ProblemView)}}
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response["headers"] = {
            "Retry-After": {
                "description": "Seconds.",
                "required": True,
                "schema": {"type": "string", "pattern": "^[0-9]+$"},
            }
        }
    return response


# Schemas ------------------------------------------------------------------------------------------


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def _schemas(routes: Iterable[Route]) -> dict[str, Any]:
    sent: list[type[BaseModel]] = [ProblemView]
    taken: list[type[BaseModel]] = [JobSpec]
    for route in routes:
        sent += [found.model for found in route.answers.values() if found.model is not None]
        if route.body is not None and route.body.model is not None:
            taken.append(route.body.model)
    models = [*dict.fromkeys(sent), *(m for m in dict.fromkeys(taken) if not issubclass(m, Query))]
    _, found = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REF, by_alias=True
    )
    schemas: dict[str, Any] = found["$defs"]
    _loosen(schemas[JobSpec.__name__])
    schemas[BatchBody.__name__]["properties"]["jobs"]["items"] = _ref(JobSpec)
    return schemas


def _loosen(spec: dict[str, Any]) -> None:
    """Short forms that the reader takes and the models do not show."""
    for name in _SHORT_FORMS:
        exact = spec["properties"][name]
        spec["properties"][name] = {
            "description": "A list; an item may be just its path or id, one item needs no list.",
            "anyOf": [
                {k: v for k, v in exact.items() if k != "items"},
                {"type": "string"},
                {"type": "object"},
            ],
        }
