import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from federation.system import SystemClock
from federation.units import parse_rfc3339_ms
from regional_agent.sense.backends.nvml import NoCards, NvmlCards, nvml_cards
from regional_agent.sense.host import Card, CardUse, Host, found_pools, read_host
from regional_agent.sense.latency import (
    UNREACHABLE_US,
    InvalidTarget,
    LatencyResponder,
    Target,
    latency_report,
    parse_target,
    parse_targets,
)
from regional_agent.sense.prices import (
    DeclaredPrice,
    HourlyPrice,
    InvalidPrice,
    PriceKind,
    price_report,
)
from regional_agent.sense.reports import SiteState, capacity_report, changed, merge_pools
from regional_agent.session.hours import Hours
from regional_agent.session.ledger import Ledger, Pool, Refusal, Request

GIB = 2**30
H100 = Pool("h100", "H100", 3, 8, 64_000, 512 * GIB, simulated=True, domain="rack1")
NOW = SiteState(as_of_ms=1000, dispatch_seq=4, event_seq=9)


def held(ledger: Ledger, uid: str, **wanted: int) -> Ledger:
    made = ledger.reserve(uid, Request("h100", **wanted))
    assert not isinstance(made, Refusal)
    return made[0]


# Capacity


def test_free_is_what_is_there_less_what_is_held() -> None:
    ledger = held(Ledger((H100,)), "a-1", accelerators=6, cpus_milli=10_000, memory_bytes=GIB)
    (pool,) = capacity_report(1, ledger, NOW).pools
    assert pool.simulated
    full, part = pool.groups
    assert (full.count, full.free, full.free_cpus_milli) == (2, 8, 64_000)
    assert (part.count, part.free, part.free_cpus_milli) == (1, 2, 54_000)
    assert part.free_memory_bytes == 511 * GIB
    assert (part.total, part.cpus_milli, part.memory_bytes) == (8, 64_000, 512 * GIB)
    assert part.domain == "rack1"


def test_nodes_of_different_racks_are_different_groups() -> None:
    pool = replace(H100, domain="", racks=("r1", "r1", "r2"))
    (report,) = capacity_report(1, Ledger((pool,)), NOW).pools
    assert {(g.domain, g.count) for g in report.groups} == {("r1", 2), ("r2", 1)}
    (report,) = capacity_report(1, Ledger((pool,)), NOW, {"h100": frozenset({2})}).pools
    assert {(g.domain, g.count) for g in report.groups} == {("r1", 2)}
    assert [replace(pool, nodes=4).rack(n) for n in range(4)] == ["r1", "r1", "r2", ""]


def test_unschedulable_nodes_are_not_there() -> None:
    report = capacity_report(1, Ledger((H100,)), NOW, {"h100": frozenset({0, 2})})
    assert [g.count for g in report.pools[0].groups] == [1]


def test_a_site_that_is_not_open_has_nothing_free() -> None:
    report = capacity_report(1, Ledger((H100,)), SiteState(1, 1, 1, state="draining"))
    (group,) = report.pools[0].groups
    assert (group.count, group.free, group.free_cpus_milli, group.total) == (3, 0, 0, 8)


def test_only_news_is_news() -> None:
    report = capacity_report(1, Ledger((H100,)), NOW)
    later = capacity_report(2, Ledger((H100,)), SiteState(9999, 4, 9))
    assert changed(None, report) and not changed(report, later)
    assert changed(report, capacity_report(2, Ledger((H100,)), SiteState(1000, 5, 9)))
    assert changed(report, capacity_report(2, held(Ledger((H100,)), "a-1"), NOW)) is False
    used = held(Ledger((H100,)), "a-1", accelerators=1)
    assert changed(report, capacity_report(2, used, NOW))


def test_what_is_declared_stands() -> None:
    found = Pool("h100", "H100", 1, 1, 1, 1)
    cpu = Pool("cpu", "CPU", 1, 1, 1, 1)
    assert merge_pools([H100], [found, cpu]) == (H100, cpu)


# Host and cards


def test_this_host_has_something() -> None:
    host = read_host()
    assert host.cpus_milli >= 1000 and host.memory_bytes > 64 * 2**20


def test_a_host_without_cards_has_slots() -> None:
    (pool,) = found_pools(Host(4000, 8 * GIB), [])
    assert (pool.accelerator, pool.accelerators_per_node) == ("CPU", 4)
    assert not pool.simulated


def test_one_pool_per_model_under_its_canonical_name() -> None:
    cards = [Card(n, "NVIDIA H100 80GB HBM3", 80 * GIB) for n in range(3)]
    cards.append(Card(3, "Mystery 9000", GIB))
    pools = found_pools(Host(8000, 400 * GIB), cards)
    assert [(p.name, p.accelerator, p.accelerators_per_node) for p in pools] == [
        ("h100", "H100", 3),
        ("mystery 9000", "Mystery 9000", 1),
    ]
    assert sum(p.cpus_milli for p in pools) == 8000


class FakeNvml:
    """Answers like pynvml for a host whose third card has fallen off the bus."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, driver: bool = True) -> None:
        self.driver = driver
        self.open = 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise self.NVMLError("driver not loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 2:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:
        return b"NVIDIA L4" if handle else "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, handle: int) -> Any:
        if handle:
            raise self.NVMLError("not supported")
        return b"GPU-7"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=24 * GIB, used=2 * GIB)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        if handle:
            raise self.NVMLError("not supported")
        return SimpleNamespace(gpu=87)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> Any:
        return [SimpleNamespace(pid=4711)]


def test_cards_by_nvml() -> None:
    library = FakeNvml()
    cards = NvmlCards(library)
    assert [c.name for c in cards.cards()] == ["NVIDIA H100 80GB HBM3", "NVIDIA L4"]
    assert [c.uuid for c in cards.cards()] == ["GPU-7", ""]
    assert cards.use() == (
        CardUse(0, 87, 2 * GIB, (4711,)),
        CardUse(1, 0, 2 * GIB, (4711,)),
    )
    assert library.open == 0


def test_no_driver_is_no_cards() -> None:
    assert NvmlCards(FakeNvml(driver=False)).cards() == ()
    assert NoCards().cards() == NoCards().use() == ()
    # Whatever is installed here, asking must not fail.
    assert isinstance(nvml_cards().cards(), tuple)


# Prices


def price(**changes: Any) -> DeclaredPrice:
    fields: dict[str, Any] = {
        "pool": "h100", "kind": PriceKind.ON_DEMAND, "marginal_micro_usd": 2_000_000,
        "full_micro_usd": 2_500_000, "as_of_ms": 50, "source": "contract",
    }  # fmt: skip
    return DeclaredPrice(**fields | changes)


NIGHT = Hours(frozenset(range(5)), 22 * 60, 6 * 60, ZoneInfo("Europe/Berlin"))
WEEKEND = Hours(frozenset({5, 6}), 0, 24 * 60, ZoneInfo("Europe/Berlin"))


def test_prices_by_the_hour_are_told_for_a_week_in_order() -> None:
    monday_noon_ms = parse_rfc3339_ms("2026-03-23T11:00:00Z")
    by_hour = (HourlyPrice(NIGHT, 500_000), HourlyPrice(WEEKEND, 800_000))
    (shown,) = price_report(1, [price(hours=by_hour)], ["h100"], monday_noon_ms).pools
    assert len(shown.steps) == 6
    first, *_, saturday, weekend = shown.steps
    assert first.from_ms == parse_rfc3339_ms("2026-03-23T21:00:00Z")
    assert first.until_ms == parse_rfc3339_ms("2026-03-24T05:00:00Z")
    assert saturday.until_ms == weekend.from_ms == parse_rfc3339_ms("2026-03-28T05:00:00Z")
    assert (saturday.marginal_micro_usd, weekend.marginal_micro_usd) == (500_000, 800_000)
    # The clock is put forward that Sunday: the weekend is an hour shorter.
    assert weekend.until_ms == parse_rfc3339_ms("2026-03-29T22:00:00Z")


def test_the_price_that_holds_now() -> None:
    old = price(valid_from_ms=0, valid_until_ms=100)
    new = price(valid_from_ms=90, marginal_micro_usd=1_000_000)
    for now_ms, expected in ((10, 2_000_000), (95, 1_000_000), (200, 1_000_000)):
        (shown,) = price_report(1, [new, old], ["h100"], now_ms).pools
        assert shown.marginal_micro_usd == expected
    assert (shown.kind, shown.source, shown.as_of_ms) == ("on-demand", "contract", 50)


def test_no_price_is_unknown_and_not_free() -> None:
    assert price_report(1, [price(valid_until_ms=100)], ["h100"], 100).pools == ()
    assert price_report(1, [price()], ["a100"], 100).pools == ()


@pytest.mark.parametrize(
    "slip",
    [
        {"marginal_micro_usd": -1},
        {"full_micro_usd": 2_000_000_000},
        {"marginal_micro_usd": 0},
        {"source": " "},
        {"valid_from_ms": 5, "valid_until_ms": 5},
        {"preemptions_per_h": 0.1},
        {"hours": (HourlyPrice(NIGHT, 0),)},
        {"hours": (HourlyPrice(NIGHT, 2_000_000_000),)},
    ],
)
def test_slips_are_refused(slip: dict[str, Any]) -> None:
    with pytest.raises(InvalidPrice, match="h100"):
        price(**slip)


def test_what_is_owned_may_cost_nothing_more() -> None:
    assert price(kind=PriceKind.OWNED, marginal_micro_usd=0).marginal_micro_usd == 0


# Latency


def test_targets() -> None:
    assert parse_target("eu", "broker.example:443") == Target("eu", "broker.example", 443)
    assert parse_target("eu", "[::1]:80").address == "[::1]:80"
    assert len(parse_targets({"eu": ["a:1", "b:2"], "us": ["c:3"]})) == 3
    for wrong in ("a", "a:", ":1", "a:0", "a:65536", "::1:80", "a:x"):
        with pytest.raises(InvalidTarget):
            parse_target("eu", wrong)


async def test_measured_to_a_responder_and_to_nobody() -> None:
    responder = LatencyResponder("127.0.0.1", 0)
    await responder.start()
    there = Target("eu", "localhost", responder.port)
    gone = LatencyResponder("127.0.0.1", 0)
    await gone.start()
    nobody = Target("us", "127.0.0.1", gone.port)
    await gone.stop()
    nameless = Target("ap", "no-such-host.invalid", 1)
    report = await latency_report(7, [there, nobody, nameless], SystemClock())
    by_region = {r.target_region: r.rtt_us for r in report.round_trips}
    assert 0 < by_region["eu"] < 1_000_000
    assert by_region["us"] == by_region["ap"] == UNREACHABLE_US
    await responder.stop()


async def test_a_target_that_does_not_answer_in_time() -> None:
    # A full backlog that nobody accepts from leaves further connects unanswered.
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        report = await latency_report(1, [Target("eu", "127.0.0.1", port)], SystemClock(), 0.2)
        assert report.round_trips[0].rtt_us == UNREACHABLE_US
        assert loop.time() - began_s < 2
        for filler in fillers:
            filler.close()
