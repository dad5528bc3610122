"""Datasets: data known by name, where it lies and where it may be read."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.api.problems import field_problem, not_found
from broker.api.routes import Call, answer
from broker.api.views import utc
from broker.control.data_ways import KnownBy, Ways
from broker.model.data import Dataset
from broker.sense.datasets import encode_dataset, read_datasets
from broker.state import keys
from federation.kv import Delete, Op, Put, Txn
from federation.units import parse_bytes


def _view(dataset: Dataset) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "bytes": dataset.size_bytes,
        "regions": list(dataset.regions),
        "residency": list(dataset.residency),
        "changed_at": utc(dataset.changed_ms),
        "changed_by": dataset.subject,
    }


async def datasets(call: Call) -> web.Response:
    """GET /v1/datasets."""
    known = read_datasets(call.api.services.projection)
    return answer(200, {"datasets": [_view(known[name]) for name in sorted(known)]})


async def links(call: Call) -> web.Response:
    """GET /v1/links."""
    services = call.api.services
    stated = services.settings.links
    ways = Ways(stated, services.control.fleet().clusters.values(), call.now_ms)
    rows = []
    for (start, end), link in sorted(stated.items()):
        speed = ways.speed((start, end))
        by_sites = speed.known_by is KnownBy.MEASURED
        rows.append(
            {
                "from_region": start,
                "to_region": end,
                "egress_usd_per_gb": link.egress_usd_per_gb,
                "gbps": round(speed.gbps, 6) or None,
                "speed": speed.known_by.value,
                "at_least": speed.at_least,
                "stated_gbps": link.gbps or None,
                "source": "the sites there" if by_sites else link.source,
                "as_of_at": utc(speed.as_of_ms if by_sites else link.as_of_ms),
            }
        )
    return answer(200, {"links": rows})


async def write(call: Call) -> web.Response:
    """PUT /v1/datasets/{dataset}: whole."""
    body = call.body
    try:
        size_bytes = parse_bytes(body.size)
    except ValueError as error:
        raise field_problem(422, "bad_body", "size", str(error), "write 1.5TiB") from None
    outside = [region for region in body.regions if body.residency and region not in body.residency]
    if outside:
        raise field_problem(
            422, "bad_body", "residency", f"it lies in {outside[0]}, where it may not be read",
            f"add {outside[0]}, or take it out of regions",
        )  # fmt: skip
    dataset = Dataset(
        call.params["dataset"],
        size_bytes,
        tuple(body.regions),
        tuple(body.residency),
        call.now_ms,
        call.viewer.subject,
    )
    await _put(call, Put(keys.dataset(dataset.name), encode_dataset(dataset)))
    return answer(200, _view(dataset))


async def remove(call: Call) -> web.Response:
    """DELETE /v1/datasets/{dataset}: jobs that need it then wait."""
    name = call.params["dataset"]
    known = read_datasets(call.api.services.projection)
    if name not in known:
        raise not_found("dataset", name)
    await _put(call, Delete(keys.dataset(name)))
    return answer(200, _view(known[name]))


async def _put(call: Call, op: Op) -> None:
    services = call.api.services
    result = await services.store.txn(Txn((), (op,)))
    services.projection.fold_own(result.revision, (op,))
