"""Faults that users of other federations reported, each as the behaviour that is right here.

The numbers are those of the catalogue these tests were written from; what a simulated site cannot
show (local retries of batch systems, data, cordoned nodes) is tested where those parts are.
"""

from __future__ import annotations

from tests.simulation.federations import FAR, NEAR, fault, job, moments, pool, simulate

HOUR = 3600


# Lost or twice --------------------------------------------------------------------------------


def test_lesson_01_an_end_is_kept_until_the_broker_has_it() -> None:
    result = simulate(
        [job("a", 1, 20, on="near")],
        [fault("partition", 10, 300, "near"), fault("broker_crash", 60, 120)],
    )
    assert result.story == {"a": "succeeded near:succeeded"}
    assert result.metrics["starts"] == 1


def test_lesson_06_every_answered_submission_is_one_job() -> None:
    jobs = [job(f"j{n}", 10 + n / 5, 5) for n in range(20)]
    result = simulate(jobs, [fault("store_ambiguous", 9, 20, share=0.9)])
    assert result.metrics["jobs"] == result.metrics["succeeded"] == 20
    assert result.metrics["starts"] == 20


def test_lesson_07_a_leader_cut_off_from_the_store_stops_before_another_acts() -> None:
    jobs = [job(f"j{n}", 1 + n, 30, cards=4) for n in range(40)]
    result = simulate(jobs, [fault("broker_cut_off", 15, 60, "broker-1")], brokers=2)
    assert result.metrics["succeeded"] == result.metrics["starts"] == 40


def test_lesson_08_a_restart_adopts_what_runs() -> None:
    result = simulate([job("a", 1, 600), job("b", 2, 600)], [fault("broker_crash", 60, 30)])
    assert result.metrics["starts"] == result.metrics["attempts"] == 2


def test_lesson_09_a_repeated_command_is_answered_again_and_not_done_again() -> None:
    jobs = [job(f"j{n}", 5 + n, 3, on="near") for n in range(20)]
    result = simulate(jobs, [fault("flap", 4, 40, "near", every=0.7)])
    assert result.metrics["succeeded"] == result.metrics["starts"] == 20


def test_lesson_10_a_lost_report_is_no_lost_job() -> None:
    result = simulate(
        [job("a", 1, 30, on="near"), job("b", 1, 30, on="near")],
        [fault("partition", 25, 60, "near"), fault("agent_crash", 40, 30, "near")],
    )
    assert result.metrics["succeeded"] == result.metrics["starts"] == 2


def test_lesson_11_a_kill_is_for_one_attempt() -> None:
    """The first attempt is withdrawn while its site is away; the second, at the same site, is not
    hurt by the repeated kill of the first."""
    limited = {"placement": {"max_start_delay": "20s"}}
    result = simulate(
        [job("a", 5, 120, on="near", spec=limited)],
        [
            fault("slow", 1, 60, "near", factor=1000),
            fault("partition", 20, 60, "near"),
            fault("flap", 90, 60, "near", every=2),
        ],
    )
    assert result.story == {"a": "succeeded near:withdrawn near:succeeded"}


def test_lesson_12_an_event_is_acknowledged_when_it_is_durable() -> None:
    result = simulate(
        [job(f"j{n}", 1, 20 + n, on="near") for n in range(5)],
        [
            fault("store_down", 15, 60),
            fault("agent_crash", 30, 10, "near"),
            fault("broker_crash", 50, 10),
        ],
    )
    assert result.metrics["succeeded"] == result.metrics["starts"] == 5


def test_lesson_31_refusals_are_bounded_and_visible() -> None:
    result = simulate(
        [job("a", 1, 20, on="near")],
        [fault("refuse", 0, 2 * HOUR, "near", share=1)],
        settle=2 * HOUR,
    )
    assert result.story["a"].startswith("succeeded")  # the fault ended before patience did
    assert 3 <= result.metrics["refusals"] <= 40


def test_lesson_31_what_waits_after_a_refusal_says_so() -> None:
    result = simulate(
        [job("a", 1, 20, on="near", cancel=500)],
        [fault("refuse", 0, 600, "near", share=1)],
    )
    assert any("queued submit_failed" in line for line in result.transcript)


def test_lesson_48_unknown_is_not_unstarted() -> None:
    """Broker and agent blink at once, between a start and its report."""
    result = simulate(
        [job("a", 1, 300, on="near")],
        [
            fault("partition", 1.5, 60, "near"),
            fault("agent_crash", 3, 20, "near"),
            fault("broker_crash", 2, 30),
        ],
    )
    assert result.story == {"a": "succeeded near:succeeded"}
    assert result.metrics["starts"] == 1


# Stale and disconnected -----------------------------------------------------------------------


def test_lesson_02_a_short_reconnect_evicts_nothing() -> None:
    cuts = [fault("cut", at, 0, "near") for at in (600, 900, 1200)]
    result = simulate([job("a", 1, 1800, on="near")], cuts)
    assert result.metrics["attempts"] == result.metrics["starts"] == 1


def test_lesson_03_a_lost_site_is_named_as_the_reason() -> None:
    result = simulate(
        [job("waits", 120, 10, on="near")],
        [fault("partition", 60, 3 * HOUR, "near")],
        settle=4 * HOUR,
    )
    assert any("queued cluster_unreachable" in line for line in result.transcript)
    assert result.metrics["succeeded"] == 1


def test_lesson_04_a_restart_gives_the_same_answer_about_a_lost_site() -> None:
    """Partition first, then a new broker that never heard of the site: what runs there is left
    alone, what waits for it has the same reason."""
    result = simulate(
        [job("runs", 1, 900, on="near"), job("waits", 700, 10, on="near")],
        [fault("partition", 60, 1200, "near"), fault("broker_crash", 300, 60)],
    )
    assert any("queued cluster_unreachable" in line for line in result.transcript)
    assert result.metrics["starts"] == result.metrics["attempts"] == 2


def test_lesson_05_nothing_expires_while_the_broker_is_away() -> None:
    result = simulate(
        [job("long", 1, 5 * HOUR), job("ends", 1, HOUR), job("later", 3 * HOUR + 10, 60)],
        [fault("broker_crash", 60, 3 * HOUR)],
        settle=6 * HOUR,
    )
    assert result.metrics["succeeded"] == result.metrics["starts"] == 3


def test_lesson_13_back_after_hours_with_one_copy() -> None:
    result = simulate(
        [job("a", 1, 4 * HOUR, on="near")],
        [fault("partition", 600, 6 * HOUR, "near")],
        settle=8 * HOUR,
    )
    assert result.metrics["starts"] == result.metrics["succeeded"] == 1


def test_lesson_14_an_unreachable_site_keeps_its_work() -> None:
    """Room elsewhere is no reason to move what may still run."""
    result = simulate([job("a", 1, 300)], [fault("partition", 60, 900, "near")])
    assert result.story == {"a": "succeeded near:succeeded"}


def test_lesson_15_a_glitch_of_seconds_ends_no_session() -> None:
    glitches = [fault("partition", at, 8, "near") for at in (60, 120, 180)]
    result = simulate([job("a", 1, 300, on="near")], glitches)
    assert result.metrics["attempts"] == 1
    assert len(moments(result, "near agent starts")) == 1


def test_lesson_16_a_release_is_repeated_until_it_is_confirmed() -> None:
    """Cancelled while the site is away: over only once the site says that it is."""
    result = simulate(
        [job("a", 1, HOUR, on="near", cancel=90)], [fault("partition", 60, 600, "near")]
    )
    (stopped_s,) = moments(result, "near ends", "cancelled")
    assert stopped_s > 660
    uid = next(line.split()[3] for line in result.transcript if " near ends " in line)
    (ended_s,) = moments(result, f"store {uid.split('-')[0]} ended")
    assert ended_s >= stopped_s


def test_lesson_17_a_stale_capacity_counts_for_nothing_and_is_named() -> None:
    result = simulate(
        [job("tied", 300, 10, on="near"), job("free", 300, 10)],
        [fault("mute", 100, 600, "near")],
    )
    assert any("queued capacity_stale" in line for line in result.transcript)
    assert result.story["free"] == "succeeded far:succeeded"
    assert result.metrics["succeeded"] == 2


def test_lesson_47_leadership_passes_without_a_lease() -> None:
    """A leader that dies is followed within its TTL and a little, by its silence alone."""
    result = simulate([job("a", 62, 10)], [fault("broker_crash", 60, HOUR, "broker-1")], brokers=2)
    (placed_s,) = moments(result, "store j", "-1 placed")
    assert 62 < placed_s < 60 + 6 + 6


def test_lesson_49_a_drain_has_an_end() -> None:
    result = simulate(
        [job("a", 1, HOUR), job("b", 200, 10)], [fault("drain", 60, 300, "near")], settle=2 * HOUR
    )
    assert result.story["b"] == "succeeded far:succeeded"
    assert result.story["a"] == "succeeded near:preempted far:succeeded"
    (moved_s,) = moments(result, "near ends")
    assert 360 <= moved_s < 375


# Placement ------------------------------------------------------------------------------------


def test_lesson_18_one_report_is_promised_once() -> None:
    """A full minute without a report: decision after decision, and no site has to refuse."""
    jobs = [job(f"j{n}", 21 + n / 4, 300, cards=4, on="near") for n in range(10)]
    result = simulate(jobs, [fault("mute", 20, 30, "near")])
    assert result.metrics["refusals"] == 0
    assert result.metrics["succeeded"] == 10


def test_lesson_19_free_cards_of_several_nodes_are_not_one_node() -> None:
    small = pool("near", accelerators_per_node=4, free_nodes={4: 4})
    result = simulate([job("a", 1, 10, cards=8, cancel=60)], pools=[small])
    assert result.metrics["attempts"] == 0
    assert any("queued replica_too_large" in line for line in result.transcript)


def test_lesson_20_unknown_capacity_is_no_capacity() -> None:
    """A site that has not said what it has gets nothing until it does."""
    result = simulate(
        [job("tied", 30, 10, on="near"), job("free", 30, 10)], [fault("mute", 0, 120, "near")]
    )
    assert result.story["free"] == "succeeded far:succeeded"
    assert result.story["tied"] == "succeeded near:succeeded"
    assert min(moments(result, "placed at near")) > 120


def test_lesson_21_22_a_job_wakes_one_site() -> None:
    """Everybody is slow to start: the job waits in the one place chosen for it."""
    pools = [NEAR, FAR, pool("third")]
    slow = [fault("slow", 0, 1200, each["cluster"], factor=600) for each in pools]
    result = simulate([job("a", 1, 60)], slow, pools)
    assert result.metrics["attempts"] == result.metrics["starts"] == 1


def test_lesson_23_a_name_is_not_an_identity() -> None:
    same = {"name": "train", "resources": {"accelerators": "H100:1"}}
    result = simulate(
        [
            job("mine", 1, 120, on="near", spec=same, cancel=30),
            job("yours", 2, 120, on="near", spec=same),
        ]
    )
    assert result.story == {"mine": "cancelled near:cancelled", "yours": "succeeded near:succeeded"}


def test_lesson_27_a_doomed_gang_blocks_nobody() -> None:
    doomed = {"resources": {"accelerators": "H100:8", "replicas": 9}, "priority": 900}
    small = [job(f"j{n}", 10 + n, 30, cards=4) for n in range(8)]
    result = simulate([job("doomed", 1, 60, spec=doomed, cancel=600), *small])
    assert result.metrics["succeeded"] == 8
    assert result.metrics["wait_s_p99"] < 3


def test_lesson_50_small_jobs_leave_whole_nodes() -> None:
    small = [job(f"j{n}", 1 + n, 600, on="near") for n in range(8)]
    result = simulate([*small, job("whole", 30, 60, cards=8, on="near")])
    assert result.metrics["wait_s_p99"] < 3


def test_lesson_50_a_free_place_before_a_busy_one() -> None:
    """The cheapest site is full: a short job goes where it starts at once."""
    full = job("full", 1, HOUR, spec={"resources": {"accelerators": "H100:8", "replicas": 2}})
    result = simulate([full, job("short", 30, 30)], settle=2 * HOUR)
    assert result.story["short"] == "succeeded far:succeeded"
    assert result.metrics["wait_s_p99"] < 3


def test_lesson_51_a_local_wait_is_withdrawn_and_placed_anew() -> None:
    limited = {"placement": {"max_start_delay": "60s"}}
    slow = fault("slow", 1, HOUR, "near", factor=5000)
    result = simulate([job("a", 5, 30, spec=limited)], [slow])
    assert result.story == {"a": "succeeded near:withdrawn far:succeeded"}
    (gone_s,) = moments(result, "-1 ended at near")
    (again_s,) = moments(result, "-2 placed at far")
    assert gone_s <= again_s


# Cancel ---------------------------------------------------------------------------------------


def test_lesson_41_an_acknowledged_cancel_wins_and_is_driven_home() -> None:
    """Cancelled while the site is away, the leader dies and the agent too."""
    result = simulate(
        [job("a", 1, HOUR, on="near", cancel=70), job("b", 60.5, HOUR, on="near", cancel=75)],
        [
            fault("partition", 60, 120, "near"),
            fault("broker_crash", 80, 30),
            fault("agent_crash", 100, 60, "near"),
        ],
    )
    assert result.metrics["cancelled"] == 2
    assert max(moments(result, "near ends"), default=0) < 300


def test_lesson_42_a_huge_array_is_cancelled_at_once() -> None:
    huge = {"array": "0-149999", "resources": {"accelerators": "H100:1"}}
    result = simulate([job("a", 1, 30, spec=huge, cancel=300)])
    (asked_s,) = moments(result, "user asked cancel")
    assert result.metrics["cancelled"] == 1
    assert result.metrics["makespan_s"] < asked_s + 10
