"""What starts before teach of the next one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.model.fleet import Cache, Capacity, ClusterIdentity, ClusterState, ClusterView
from broker.sense.start_delay import (
    CACHE_AGE_MAX_MS,
    RATE_BYTES_PER_S,
    SAMPLES,
    StartDelays,
    StartSample,
    missing_bytes,
    start_sample,
)
from federation.ids import Cluster, Region

NOW_MS = 1_000_000
MB = 1_000_000
BLOB = {"a" * 64: 20 * MB}


def view(name: str = "eu", **more) -> ClusterView:
    identity = ClusterIdentity(Cluster(name), Region(name), ClusterState.JOINED)
    return replace(ClusterView(identity, connected_since_ms=1), **more)


def cache(blobs: dict[str, int], **more) -> Cache:
    return replace(Cache(NOW_MS, blobs), **more)


def taught(*rows: tuple[int, int, int, int], cluster: str = "eu") -> StartDelays:
    """Rows of handshake, prepare and launch in ms, and bytes fetched."""
    learned = StartDelays()
    for n, row in enumerate(rows):
        learned.observe(StartSample(f"{cluster}-{n}", cluster, *row))
    return learned


def test_nobody_knows_anything_of_a_new_cluster_but_what_it_says_itself():
    nothing = StartDelays().estimate(view(), {}, NOW_MS)
    assert (nothing.p50_s, nothing.p90_s, nothing.samples) == (0, 0, 0)
    said = Capacity(NOW_MS, 1, 1, 0, 0, (), start_p50_ms=300, start_p90_ms=900)
    told = StartDelays().estimate(view(capacity=said), {}, NOW_MS)
    assert (told.p50_s, told.p90_s) == (pytest.approx(0.3), pytest.approx(0.9))


def test_the_median_is_the_sum_of_the_parts_medians():
    learned = taught(*[(10, 20, 300, 0)] * 9, (500, 20, 300, 0))
    found = learned.estimate(view(), {}, NOW_MS)
    assert found.p50_s == pytest.approx(0.33)
    assert (found.handshake.p50_s, found.prepare.p50_s, found.launch.p50_s) == (0.01, 0.02, 0.3)
    assert found.handshake.p90_s == 0.5
    assert found.p90_s == pytest.approx(0.33 + 0.49)


def test_independent_parts_do_not_all_go_badly_at_once():
    rows = [(10, 10, 10, 0)] * 8 + [(310, 10, 410, 0)] * 2
    found = taught(*rows).estimate(view(), {}, NOW_MS)
    assert found.p90_s - found.p50_s == pytest.approx(0.5)


def test_bytes_not_there_come_at_the_measured_rate():
    learned = taught(*[(0, 2_000, 0, 20 * MB)] * 5, (0, 30, 0, 0))
    assert learned.rate_bytes_per_s(view()) == 10 * MB
    far = learned.estimate(view(cache=cache({})), BLOB, NOW_MS)
    near = learned.estimate(view(cache=cache(BLOB)), BLOB, NOW_MS)
    assert (far.fetch_bytes, near.fetch_bytes) == (20 * MB, 0)
    assert far.p50_s - near.p50_s == pytest.approx(2.0)
    assert near.prepare.p50_s == pytest.approx(0.03)


def test_the_slow_fetches_make_the_p90():
    learned = taught(*[(0, 1_000, 0, 20 * MB)] * 5, *[(0, 10_000, 0, 20 * MB)] * 2)
    found = learned.estimate(view(cache=cache({})), BLOB, NOW_MS)
    assert (found.prepare.p50_s, found.prepare.p90_s) == (1, 10)


def test_a_rate_nobody_measured_here_is_the_sites_own_then_that_of_others_then_assumed():
    assert StartDelays().rate_bytes_per_s(view()) == RATE_BYTES_PER_S
    others = taught((0, 1_000, 0, 4 * MB), cluster="us")
    assert others.rate_bytes_per_s(view()) == 4 * MB
    own = view(cache=cache({}, fetch_bytes_per_s=7 * MB))
    assert others.rate_bytes_per_s(own) == 7 * MB


def test_what_a_cache_held_long_ago_counts_as_gone():
    old = view(cache=cache(BLOB, received_ms=NOW_MS - CACHE_AGE_MAX_MS - 1))
    assert missing_bytes(old, BLOB, NOW_MS) == 20 * MB
    assert missing_bytes(view(), BLOB, NOW_MS) == 20 * MB


def test_without_a_session_the_site_has_to_dial_in_first():
    silent = view(connected_since_ms=0, silent_since_ms=1, cold_handshake_ms=400)
    assert taught((10, 0, 0, 0)).estimate(silent, {}, NOW_MS).p50_s == pytest.approx(0.41)


def test_the_same_start_told_twice_counts_once_and_only_the_last_ones_count():
    learned = taught(*[(1_000, 0, 0, 0)] * SAMPLES)
    learned.observe(StartSample("eu-0", "eu", 0, 0, 0))
    assert learned.estimate(view(), {}, NOW_MS).p50_s == 1
    for n in range(SAMPLES):
        learned.observe(StartSample(f"new-{n}", "eu", 10, 0, 0))
    found = learned.estimate(view(), {}, NOW_MS)
    assert (found.samples, found.handshake.p90_s) == (SAMPLES, 0.01)


def test_the_parts_of_a_start_add_up_to_it():
    made = start_sample("j-1", "eu", (1_000, 1_010, 1_900), 500, 7)
    assert made == StartSample("j-1", "eu", 10, 500, 390, 7)


@pytest.mark.parametrize("times", [(0, 1, 2), (5, 4, 9), (5, 6, 0), (5, 0, 9)])
def test_what_never_started_or_makes_no_sense_teaches_nothing(times: tuple[int, int, int]):
    assert start_sample("j-1", "eu", times, 1, 0) is None
