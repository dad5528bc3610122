import pytest

from federation.jobs import parse_job_spec
from federation.resources import ResourceVector, replica_vector
from federation.units import GIB
from federation.usage import Usage


def test_a_replica_takes_what_its_job_says():
    job = parse_job_spec({
        "run": "x",
        "resources": {"cpus": 2.5, "memory": "4GiB", "disk": "10GiB", "accelerators": "A100:4"},
    })  # fmt: skip
    assert replica_vector(job.resources) == ResourceVector(2_500, 4 * GIB, 4, 10 * GIB)
    assert replica_vector(parse_job_spec({"run": "x"}).resources) == ResourceVector(1_000, GIB)


def test_vectors_fit_only_component_by_component():
    free = ResourceVector(cpus_milli=8_000, memory_bytes=16, accelerators=4, disk_bytes=100)
    assert ResourceVector(8_000, 16, 4, 100).fits_in(free)
    for bigger in (
        ResourceVector(cpus_milli=8_001),
        ResourceVector(memory_bytes=17),
        ResourceVector(accelerators=5),
        ResourceVector(disk_bytes=101),
    ):
        assert not bigger.fits_in(free)


def test_how_many_copies_fit_is_bound_by_the_scarcest_component():
    free = ResourceVector(cpus_milli=8_000, memory_bytes=100, accelerators=3)
    assert ResourceVector(cpus_milli=1_000, memory_bytes=1, accelerators=1).copies_in(free) == 3
    assert ResourceVector(disk_bytes=1).copies_in(free) == 0
    assert ResourceVector(cpus_milli=1).copies_in(ResourceVector(cpus_milli=-5)) == 0
    assert ResourceVector().copies_in(free) is None


def test_vectors_add_scale_and_subtract():
    one = ResourceVector(1, 2, 3, 4)
    assert one * 3 - one == one + one


def test_usage_adds_up_but_for_the_peak():
    total = Usage(10, 20, 300, 5) + Usage(1, 2, 400, 5)
    assert total == Usage(wall_ms=11, cpu_ms=22, max_rss_bytes=400, accelerator_ms=10)
    assert total + Usage() == total


def test_negative_usage_is_refused():
    with pytest.raises(ValueError, match="cpu_ms -1"):
        Usage(cpu_ms=-1)
