"""The queue of a site as it is reported: its depth, and when one more job would start."""

from __future__ import annotations

import pytest

from federation.local_queue import LocalQueue
from regional_agent.slurm import queue, waits
from regional_agent.slurm.site import PoolSource, SlurmSite
from regional_agent.slurm.start_forecast import ENOUGH, StartForecast, Waiting

ROWS = queue.parse_queue(
    "1|1|N/A|RUNNING|None|a|main|1|1|n1|90|gres:gpu:h100:8|x|(null)\n"
    "2|2|N/A|PENDING|Resources|a|main|2|2||190|gres:gpu:h100:8|x|(null)\n"
    "3|3|0-9|PENDING|Priority|b|long,main|1|1||N/A|gres/gpu:2|x|(null)\n"
    "4|4|N/A|PENDING|JobHeldUser|b|main|1|1||N/A|N/A|x|(null)\n"
    "5|5|N/A|PENDING|Priority|b|other|1|1||N/A|N/A|x|(null)\n"
)


def test_those_in_front_are_counted_and_those_held_back_are_not() -> None:
    assert waits.in_front(ROWS, "main") == LocalQueue(11, 16 + 20)
    assert waits.in_front(ROWS, "long") == LocalQueue(10, 20)
    assert waits.in_front(ROWS, "idle") == LocalQueue(0, 0)


def test_what_test_only_prints() -> None:
    said = "sbatch: Job 4 to start at 2026-11-30T20:58:40 using 1 processors on nodes n1 in ..."
    assert waits.parse_start(said) == 1796072320
    assert waits.parse_start("allocation failure: Requested node configuration is not") is None


def test_the_question_is_of_the_pool_and_within_its_walltime() -> None:
    site = SlurmSite(accounts={"physics": "phy01"}, qos="normal")
    words = waits.probe(site, PoolSource("main", "h100", 8, 4, walltime_max_s=600))
    assert "--gres=gpu:h100:1" in words and "--time=10" in words and "--test-only" in words
    assert {"--partition=main", "--account=phy01", "--qos=normal"} <= set(words)


def test_a_start_nobody_knows_stays_unknown_and_one_in_the_past_is_now() -> None:
    forecast, ahead = StartForecast(), LocalQueue(3, 4)
    assert waits.with_start(ahead, forecast, "main", None, 100) == ahead
    assert waits.with_start(ahead, forecast, "main", 90, 100) == LocalQueue(3, 4, 0, 0)


def test_what_is_expected_is_corrected_by_the_starts_that_were_seen() -> None:
    """Jobs said to wait 100 s that start after 40 s teach that one in 1,000 s comes in 400 s."""
    forecast = StartForecast()
    for n in range(ENOUGH):
        assert forecast.corrected_s("main", 1000) == (1000, 1000)
        began = 1000 * n
        forecast.saw([Waiting(str(n), "main", began + 100, runs=False)], began)
        forecast.saw([Waiting(str(n), "main", began + 300, runs=False)], began + 10)
        forecast.saw([Waiting(str(n), "main", began + 40, runs=True)], began + 50)
    assert forecast.corrected_s("main", 1000) == (pytest.approx(400), pytest.approx(400))
    assert forecast.corrected_s("long", 1000) == (1000, 1000)


def test_a_job_that_left_the_queue_unrun_teaches_nothing() -> None:
    forecast = StartForecast()
    forecast.saw([Waiting("1", "main", 100, runs=False)], 0)
    forecast.saw([], 10)
    forecast.saw([Waiting("1", "main", 20, runs=True)], 30)
    assert not forecast.ratios


def test_elements_that_share_a_row_are_not_followed() -> None:
    assert [job.job_id for job in waits.followed(ROWS)] == ["1", "2", "4", "5"]
