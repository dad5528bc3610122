"""The OpenAPI document: complete, closed in itself, and true to the table of routes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs

from broker.api.openapi import document
from broker.api.table import ROUTES

DRAFT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENT = document(ROUTES, "1.2.3")


def _refs(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [ref for item in value.values() for ref in _refs(item)]
    return [ref for item in value for ref in _refs(item)] if isinstance(value, list) else []


def test_every_reference_leads_somewhere() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for ref in _refs(DOCUMENT):
        assert ref.removeprefix("#/components/schemas/") in schemas, ref
    assert json.loads(json.dumps(DOCUMENT)) == DOCUMENT


def test_every_schema_is_one() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": DRAFT, **schema})


def test_every_route_is_described_once_with_its_errors() -> None:
    described = [
        operation
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
    ]
    assert len(described) == len(ROUTES) + 1
    ids = [operation["operationId"] for operation in described]
    assert len(set(ids)) == len(ids)
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        assert set(map(str, route.all_problems())) <= set(operation["responses"])
        assert bool(operation["security"]) == (route.access.value != "open")


def test_the_example_job_is_one() -> None:
    body = DOCUMENT["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    schema = {**body["schema"], "components": DOCUMENT["components"]}
    jsonschema_rs.Draft202012Validator(schema).validate(body["example"])
