"""The site's own rules: each refuses with its code, and what is reported shrinks with them."""

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from federation.jobs import parse_job_spec
from federation.refusals import RefusalCode
from federation.site_limits import NameRule, SiteLimits
from federation.tickets import Ticket
from regional_agent.sense.reports import SiteState, capacity_report
from regional_agent.session.commands import Placement
from regional_agent.session.hours import Hours
from regional_agent.session.ledger import Ledger, Pool, Request
from regional_agent.session.site_policy import (
    Asked,
    Blackout,
    GuestShare,
    SitePolicy,
    Standing,
    refuses,
    room,
)

H100 = Pool("h100", "H100", 4, 8, 96_000, 2**40)
NOW_MS = round(datetime(2026, 6, 1, 10, 0, tzinfo=UTC).timestamp() * 1000)  # a Monday
HOUR_MS = 3_600_000


def asked(spec=None, accelerators=1, max_runtime_s=3_600, **in_ticket) -> Asked:
    ticket = Ticket("j1-1", "j1", 1, "eu", "lab", "user:ann", "0" * 64, 1)
    request = Request("h100", accelerators=accelerators)
    placement = Placement("h100", max_runtime_s=max_runtime_s)
    spec = parse_job_spec(spec or {"run": "true"})
    return Asked(replace(ticket, **in_ticket), spec, placement, request)


def stands(policy: SitePolicy, ledger=None, waiting=0, now_ms=NOW_MS) -> Standing:
    return Standing(ledger or Ledger((H100,)), waiting, policy.windows(now_ms), now_ms)


def code(policy: SitePolicy, what: Asked, **more) -> str | None:
    refusal = refuses(policy, "eu", what, stands(policy, **more))
    return refusal.code if refusal else None


def limited(**limits) -> SitePolicy:
    return SitePolicy(SiteLimits(**limits))


IMAGE = {"run": "true", "image": "docker.io/evil:1"}


@pytest.mark.parametrize(
    "policy, what, expected",
    [
        (SitePolicy(), asked(), None),
        (limited(tenants=NameRule(allow=("bio-*",))), asked(), "tenant_not_allowed"),
        (limited(tenants=NameRule(allow=("l?b",))), asked(), None),
        (limited(tenants=NameRule(deny=("lab",))), asked(), "tenant_not_allowed"),
        (limited(users=NameRule(deny=("ann",))), asked(), "user_not_allowed"),
        (limited(users=NameRule(allow=("bob",))), asked(), "user_not_allowed"),
        (limited(banned=frozenset({"ann"})), asked(), "banned"),
        (limited(banned=frozenset({"lab"})), asked(), "banned"),
        (limited(images=NameRule(allow=("r.example/*",))), asked(IMAGE), "image_not_allowed"),
        (limited(images=NameRule(allow=("r.example/*",))), asked(), None),
        (limited(commands=NameRule(deny=("xmrig",))), asked({"command": ["/tmp/xmrig"]}),
         "command_not_allowed"),
        (limited(commands=NameRule(allow=("python3",))), asked({"command": ["/usr/bin/python3"]}),
         None),
        (limited(commands=NameRule(allow=("python3",))), asked(), "command_not_allowed"),
        (limited(commands=NameRule(allow=("/bin/sh",))), asked(), None),
        (limited(commands=NameRule(allow=("perl",))), asked({"run": "#!/usr/bin/perl\n1"}), None),
        (limited(max_walltime_s=3_600), asked(), None),
        (limited(max_walltime_s=3_599), asked(), "runtime_too_long"),
        (limited(max_walltime_s=3_600), asked(max_runtime_s=0), "runtime_too_long"),
        (limited(pools=NameRule(deny=("h100",))), asked(), "site_limit"),
    ],
)  # fmt: skip
def test_each_rule_refuses_with_its_own_code(policy, what, expected):
    assert code(policy, what) == expected


def test_only_so_many_may_wait():
    assert code(limited(max_pending=2), asked(), waiting=1) is None
    assert code(limited(max_pending=2), asked(), waiting=2) == "site_limit"


def test_the_guest_share_counts_what_is_held_already():
    policy = SitePolicy(share=GuestShare(500))  # 16 of 32
    ledger, _ = Ledger((H100,)).reserve("a-1", Request("h100", accelerators=8))
    assert room(policy, ledger, NOW_MS) == {"h100": 8}
    assert code(policy, asked(accelerators=8), ledger=ledger) is None
    refusal = refuses(policy, "eu", asked(accelerators=9), stands(policy, ledger))
    assert refusal.code is RefusalCode.SITE_LIMIT
    assert refusal.needed == "9 accelerators"
    assert refusal.available == "8 left of the guest share, 50 % now"


def test_the_guest_share_follows_the_hour_at_the_site():
    zone = ZoneInfo("Europe/Berlin")
    day = Hours(frozenset(range(5)), 8 * 60, 18 * 60, zone)
    policy = SitePolicy(share=GuestShare(1_000, ((day, 250),)))
    assert room(policy, Ledger((H100,)), NOW_MS) == {"h100": 8}
    assert room(policy, Ledger((H100,)), NOW_MS + 8 * HOUR_MS) == {}
    assert policy.told(NOW_MS).guest_permille == 250


def test_nothing_starts_in_a_blackout_and_nothing_that_reaches_into_one():
    begin = NOW_MS + 2 * HOUR_MS
    policy = SitePolicy(blackouts=(Blackout("power", once=(begin, begin + HOUR_MS)),))
    assert code(policy, asked(max_runtime_s=7_200)) is None
    refusal = refuses(policy, "eu", asked(max_runtime_s=7_201), stands(policy))
    assert refusal.code is RefusalCode.MAINTENANCE
    assert refusal.available == "2h until it closes (power)"
    assert code(policy, asked(), now_ms=begin) == "blackout"
    assert code(policy, asked(max_runtime_s=0), now_ms=begin - 1) == "maintenance"
    assert code(policy, asked(max_runtime_s=0), now_ms=begin + HOUR_MS) is None


def free_of(room_left) -> list[tuple[int, int]]:
    ledger, _ = Ledger((H100,)).reserve("a-1", Request("h100", accelerators=3))
    site = SiteState(1, 1, 1, room={} if room_left is None else {"h100": room_left})
    (pool,) = capacity_report(1, ledger, site).pools
    assert sum(g.count for g in pool.groups) == 4
    return [(g.count, g.free) for g in pool.groups if g.free]


def test_reported_capacity_shrinks_to_the_share_in_whole_nodes_first():
    assert free_of(None) == [(3, 8), (1, 5)]
    assert free_of(29) == [(3, 8), (1, 5)]
    assert free_of(20) == [(2, 8), (1, 4)]
    assert free_of(8) == [(1, 8)]
    assert free_of(0) == []
