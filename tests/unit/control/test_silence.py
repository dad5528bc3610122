"""What counts as the silence of a site: never our own absence."""

from __future__ import annotations

from broker.control.vigil import STOOD_STILL_S, Silence


class Time:
    def __init__(self) -> None:
        self.s = 1_000.0

    def monotonic_s(self) -> float:
        return self.s

    def now_ms(self) -> int:
        return int(self.s * 1000)


def pass_s(silence: Silence, time: Time, seconds: int) -> None:
    """A leader that looks every second."""
    for _ in range(seconds):
        time.s += 1
        silence.look()


def test_it_begins_no_sooner_than_this_watch() -> None:
    """A site last heard by an earlier leader, hours ago, has its full time under the new one."""
    time = Time()
    silence = Silence(lambda cluster: 1.0, time)
    assert silence.lasts_s("a") == 0
    pass_s(silence, time, 60)
    assert silence.lasts_s("a") == 60


def test_a_site_never_heard_counts_from_the_beginning_of_the_watch() -> None:
    time = Time()
    silence = Silence(lambda cluster: float("-inf"), time)
    pass_s(silence, time, 7)
    assert silence.lasts_s("a") == 7


def test_an_answer_ends_it() -> None:
    time, heard = Time(), {"a": 0.0}
    silence = Silence(lambda cluster: heard[cluster], time)
    pass_s(silence, time, 100)
    heard["a"] = time.s
    pass_s(silence, time, 3)
    assert silence.lasts_s("a") == 3


def test_a_leader_that_stood_still_counts_anew() -> None:
    time = Time()
    silence = Silence(lambda cluster: 0.0, time)
    pass_s(silence, time, 100)
    time.s += STOOD_STILL_S + 1  # suspended, stopped by a signal, or out of breath
    silence.look()
    assert silence.lasts_s("a") == 0
