from datetime import UTC, datetime

from federation.environment import Clock, Ids, Rng
from federation.ids import job_time_ms
from federation.system import SystemClock, SystemIds, SystemRng


def test_the_real_clock_tells_utc_and_never_goes_back():
    clock: Clock = SystemClock()
    assert abs(clock.now_ms() - datetime.now(UTC).timestamp() * 1000) < 5_000
    first = clock.monotonic_s()
    assert clock.monotonic_s() >= first


def test_the_real_dice_stay_in_range():
    rng: Rng = SystemRng()
    assert {rng.random_bits(1) for _ in range(200)} == {0, 1}
    assert all(0.5 <= rng.uniform(0.5, 0.75) <= 0.75 for _ in range(200))


def test_real_ids_are_new_and_carry_their_time():
    ids: Ids = SystemIds()
    made = {ids.job_id(1_700_000_000_000) for _ in range(100)}
    assert len(made) == 100
    assert {job_time_ms(job) for job in made} == {1_700_000_000_000}
    assert len(ids.token_bytes(32)) == 32
    assert ids.token_bytes(32) != ids.token_bytes(32)
