"""`agent.yaml` is read strictly and every fault is told."""

import pytest

from regional_agent.sense.latency import Target
from regional_agent.session.ledger import Pool
from regional_agent.settings import SettingsError, load_settings

GOOD = """
broker: https://broker.example
inventory:
  - {name: h100, accelerator: "NVIDIA H100 80GB HBM3", nodes: 4, accelerators_per_node: 8,
     cpus: 96, memory: 1TiB, simulated: true}
  - {name: cpu, cpus: 16, memory: 64GiB, accelerators_per_node: 16}
prices:
  - {pool: h100, kind: on-demand, usd_per_accelerator_hour: 2.49, as_of: 2026-01-31,
     source: "price list", timezone: Europe/Berlin,
     hours: [{days: mon-fri, from: "22:00", to: "06:00", usd_per_accelerator_hour: 1.2}]}
  - {pool: cpu, kind: owned, usd_per_accelerator_hour: 0, full_usd_per_accelerator_hour: 0.02,
     as_of: "2026-01-31T12:00:00Z", source: "depreciation"}
latency_targets: [{region: us-east, address: "10.0.0.1:9999"}]
latency_responder: 0.0.0.0:9999
tenants: [lab]
env: {OMP_NUM_THREADS: "1"}
"""


def write(tmp_path, text: str):
    (tmp_path / "agent.yaml").write_text(text)
    return tmp_path


def test_everything_is_read_with_its_unit(tmp_path):
    settings = load_settings(write(tmp_path, GOOD))
    h100, cpu = settings.pools
    assert h100 == Pool("h100", h100.accelerator, 4, 8, 96_000, 2**40, simulated=True)
    assert h100.accelerator.startswith("H100")
    assert (cpu.accelerator, cpu.accelerators_per_node) == ("CPU", 16)
    assert settings.prices[0].marginal_micro_usd == 2_490_000
    assert settings.prices[0].as_of_ms == 1_769_817_600_000
    assert (settings.prices[1].marginal_micro_usd, settings.prices[1].full_micro_usd) == (
        0,
        20_000,
    )
    (night,) = settings.prices[0].hours
    assert (night.hours.from_minute, night.hours.until_minute) == (22 * 60, 6 * 60)
    assert night.marginal_micro_usd == 1_200_000
    assert settings.latency_targets == (Target("us-east", "10.0.0.1", 9999),)
    assert settings.tenants == frozenset({"lab"})


def test_no_file_is_no_fault_unless_it_was_named(tmp_path):
    assert load_settings(tmp_path).pools == ()
    with pytest.raises(SettingsError, match="no such file"):
        load_settings(tmp_path, tmp_path / "other.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("inventery: []", "did you mean inventory"),
        ("inventory: [{name: a, cpus: 1, memory: 64}]", "memory"),
        ("inventory: [{name: a, cpus: 0, memory: 1GiB}]", "cpus"),
        ("inventory: [{name: A, cpus: 1, memory: 1GiB}]", "name"),
        ("inventory: [{name: a, cpus: 1, memory: 1GiB, racks: {r: 2}}]", "racks have 2 nodes"),
        ("inventory: [{name: a, cpus: 1, memory: 1GiB, domain: q, racks: {r: 1}}]", "either"),
        ("inventory: [{name: a, cpu: 1, memory: 1GiB}]", "did you mean cpus"),
        ("inventory: [{name: a, accelerator: H99, cpus: 1, memory: 1GiB}]", "H99"),
        (
            "inventory: [{name: a, cpus: 1, memory: 1GiB}, {name: a, cpus: 1, memory: 1GiB}]",
            "twice",
        ),
        ("prices: [{pool: a, kind: spot, usd_per_accelerator_hour: 0, as_of: 2026-01-31, "
         "source: x}]", "free of charge"),
        ("prices: [{pool: a, kind: spot, usd_per_accelerator_hour: 1, source: x}]", "as_of"),
        ("prices: [{pool: a, kind: owned, usd_per_accelerator_hour: 1, as_of: 2026-01-31, "
         "source: x, preemptions_per_hour: 1}]", "pool a: preemptions_per_hour goes with kind"),
        ("prices: [{pool: a, kind: spot, usd_per_accelerator_hour: 1, as_of: 2026-01-31, "
         "source: x, timezone: Berlin}]", "prices.0.timezone"),
        ("prices: [{pool: a, kind: spot, usd_per_accelerator_hour: 1, as_of: 2026-01-31, "
         "source: x, hours: [{days: monday, usd_per_accelerator_hour: 1}]}]", "is no day"),
        ("latency_targets: [{region: a, address: nowhere}]", "host:port"),
        ("report_sink: etcd", "etcd_endpoints"),
        ("[1, 2]", "not a mapping"),
        ("a: [", "agent.yaml"),
    ],
)  # fmt: skip
def test_a_fault_names_its_key(tmp_path, text, says):
    with pytest.raises(SettingsError, match=says):
        load_settings(write(tmp_path, text))
