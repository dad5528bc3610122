"""Datasets over the API: written by operators, seen by all, needed by the jobs that name them."""

from __future__ import annotations

from tests.integration.api.world import World

HELLO = {"run": "true", "inputs": [{"dataset": "faces"}]}
FACES = {"size": "1.5TiB", "regions": ["eu-west"], "residency": ["eu-west", "eu-north"]}


async def test_a_dataset_is_written_listed_and_forgotten(world: World) -> None:
    status, told, _ = await world.call("POST", "/v1/jobs", json=HELLO)
    assert status == 422 and told["errors"][0]["path"] == "inputs[0].dataset"
    status, told, _ = await world.call("PUT", "/v1/datasets/faces", json=FACES)
    assert (status, told["bytes"], told["regions"]) == (200, 3 * 2**39, ["eu-west"])
    listed = (await world.call("GET", "/v1/datasets"))[1]["datasets"]
    assert [each["name"] for each in listed] == ["faces"] and listed[0]["changed_by"]
    assert (await world.call("POST", "/v1/jobs", json=HELLO))[0] == 201
    assert (await world.call("DELETE", "/v1/datasets/faces"))[0] == 200
    assert (await world.call("DELETE", "/v1/datasets/faces"))[0] == 404
    assert (await world.call("GET", "/v1/datasets"))[1]["datasets"] == []


async def test_links_are_told_as_they_are_stated(world: World) -> None:
    assert (await world.call("GET", "/v1/links"))[:2] == (200, {"links": []})


async def test_a_dataset_that_cannot_be_is_refused_by_field(world: World) -> None:
    for change, field in (
        ({"size": "7"}, "size"),
        ({"regions": []}, "regions"),
        ({"regions": ["us-east"]}, "residency"),
        ({"regions": ["No Such"]}, "regions.0"),
    ):
        status, told, _ = await world.call("PUT", "/v1/datasets/faces", json=FACES | change)
        assert status == 422, change
        assert told["errors"][0]["path"] == field
