"""What a site's own people ruled and run, as the command line shows it."""

from broker.cli.federation_views import cluster_facts, cluster_table
from broker.cli.formatting import Now
from broker.cli.site_views import local_load

NOW = Now(1_700_000_000_000)
CLUSTER = {
    "name": "hpc", "region": "eu", "state": "joined", "connected": True, "running": 2,
    "site_state": "paused", "site_reason": "cooling",
    "site_rules": {
        "tenants": {"allow": ["lab"], "deny": []}, "users": {"allow": [], "deny": ["eve"]},
        "guest_share": 0.25, "max_walltime_s": 7200, "max_pending": 9, "banned": ["mallory"],
        "windows": [{"from_at": "2023-11-15T00:00:00Z", "until_at": "2023-11-16T00:00:00Z",
                     "reason": "power"}],
    },
    "local_load": {"running": 12, "waiting": 5, "accelerators": 30},
    "pools": [],
}  # fmt: skip


def test_the_list_shows_a_closed_site_and_its_own_load():
    (row,) = cluster_table([CLUSTER], NOW).rows
    assert "paused by the site" in row and "12 jobs, 5 waiting, 30 cards" in row


def test_one_cluster_shows_every_rule():
    facts = dict(cluster_facts(CLUSTER, NOW))
    assert facts["site says"] == "cooling"
    assert (facts["site tenants"], facts["site users"]) == ("allow lab", "deny eve")
    assert facts["site limits"].startswith("25 % of each pool now, jobs up to ")
    assert facts["site limits"].endswith("waiting at most 9")
    assert facts["banned"] == "mallory" and "(power)" in facts["closed"]


def test_a_site_without_rules_or_users_of_its_own_says_nothing():
    plain = {"name": "a", "site_rules": {"guest_share": 1.0}, "site_state": "open"}
    assert local_load(plain) == "-"
    assert not [name for name, _ in cluster_facts(plain, NOW) if name.startswith("site")]
