"""`site.yaml` is read strictly; a fault names the key, the value and what would be right."""

import os
from dataclasses import fields

import pytest

from regional_agent.session.site_policy import DataReads, SitePolicy
from regional_agent.settings import SettingsError
from regional_agent.site_file import SiteFile, load_site_policy

GOOD = """
timezone: Europe/Berlin
tenants: [physics, "bio-*"]
users: {deny: [mallory]}
images: {allow: ["registry.example/*"]}
commands: {deny: [xmrig]}
pools: {allow: [h100]}
guest_share:
  default: 50%
  hours: [{days: mon-fri, from: 08:00, to: "18:00", share: 25%}]
blackouts:
  - {start: 2026-12-24T12:00:00+01:00, end: 2026-12-26T00:00:00Z, reason: power}
  - {days: "sat,sun", from: "23:30", to: "03:30", reason: backup}
max_walltime: 2d
max_pending: 20
max_queued: 0
queue_start: 30m
data_reads: {size: 2MiB, rate: 1MB, every: 6h}
ban: [eve]
"""


def test_everything_is_read_with_its_unit(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text(GOOD)
    policy = load_site_policy(path)
    limits = policy.limits
    assert (limits.max_walltime_s, limits.max_pending, limits.banned) == (172_800, 20, {"eve"})
    assert limits.tenants.allow == ("physics", "bio-*") and limits.users.deny == ("mallory",)
    assert (policy.max_queued, policy.queue_start_ms) == (0, 1_800_000)
    assert policy.data_reads == DataReads(2 * 2**20, 1_000_000, 21_600)
    ((hours, permille),) = policy.share.rules
    assert (policy.share.otherwise_permille, permille) == (500, 250)
    assert (hours.from_minute, hours.until_minute) == (480, 1_080)
    once, weekly = policy.blackouts
    assert once.once == (1_798_110_000_000, 1_798_243_200_000)
    assert weekly.weekly.days == {5, 6} and weekly.reason == "backup"


@pytest.mark.parametrize(
    "text, said",
    [
        ("tenats: [a]", "tenats: unknown key; did you mean tenants?"),
        ("guest_share: {default: 50}", "guest_share.default: Value error, 50 is not a part"),
        ("guest_share: {default: 101%}", "'101%' is not a part from 0% to 100%, such as 25%"),
        ("guest_share: {hours: [{from: 25:00, share: 1%}]}", "is not a time of day"),
        ("guest_share: {hours: [{from: 8:00, to: 8:00, share: 1%}]}", "a whole day is from"),
        ("blackouts: [{days: xx, from: 8:00, to: 9:00}]", "'xx' is no day; days are mon"),
        ("blackouts: [{from: 8:00}]", "give start and end (once), or days, from and to"),
        ("blackouts: [{start: 2026-01-02T00:00:00Z, end: 2026-01-01T00:00:00Z}]",
         "end must come after start"),
        ("timezone: Mars", "'Mars' is not in this machine's time zone database"),
        ("max_walltime: 3", "duration 3 is not valid"),
        ("max_pending: 0", "max_pending: Input should be greater than or equal to 1"),
        ("data_reads: {every: 59m}", "data_reads.every: Input should be greater than or equal to"),
        ("data_reads: {size: 2GiB}", "data_reads.size: Input should be less than or equal to"),
        ("data_reads: {size: 5}", "write 5GiB"),
        ("[1]", "not a mapping of keys"),
        ("tenants: [", "while parsing"),
    ],
)  # fmt: skip
def test_a_fault_names_the_key_and_the_remedy(tmp_path, text, said):
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as problem:
        load_site_policy(path)
    assert said in str(problem.value) and str(path) in str(problem.value)


@pytest.mark.parametrize("text", ["data_reads: off", 'data_reads: "off"'])
def test_reads_are_switched_off(tmp_path, text):
    (tmp_path / "site.yaml").write_text(text)
    assert load_site_policy(tmp_path / "site.yaml").data_reads.size_bytes == 0


def test_every_key_of_the_file_reaches_the_rules(tmp_path):
    """Two were read, and then forgotten."""
    (tmp_path / "site.yaml").write_text(GOOD)
    policy, none = load_site_policy(tmp_path / "site.yaml"), SitePolicy()
    same = [f.name for f in fields(none) if getattr(policy, f.name) == getattr(none, f.name)]
    assert same == []
    mine, usual = policy.limits, none.limits
    same = [f.name for f in fields(usual) if getattr(mine, f.name) == getattr(usual, f.name)]
    assert same == ["guest_permille"], "that goes by the hour"


def test_no_file_is_no_rules_unless_it_was_named(tmp_path):
    assert load_site_policy(tmp_path / "site.yaml") == SitePolicy()
    with pytest.raises(SettingsError, match="no such file"):
        load_site_policy(tmp_path / "site.yaml", named=True)


def test_a_bad_change_leaves_the_rules_before_in_force_and_says_so(tmp_path):
    path = tmp_path / "site.yaml"
    file = SiteFile(path)
    assert file.changed(always=True) == SitePolicy()
    path.write_text("max_pending: 1\n")
    assert file.changed().limits.max_pending == 1
    assert file.changed() is None
    path.write_text("max_pending: none\n")
    assert file.changed() is None and "max_pending" in file.fault
    path.write_text("max_pending: 22\n")
    os.utime(path, ns=(1, 1))
    assert file.changed().limits.max_pending == 22 and file.fault == ""
