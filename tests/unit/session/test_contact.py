"""Contact: counted from what was sent, by what was answered; one silence too long is for good."""

from __future__ import annotations

from regional_agent.contact import HELLO, NEVER, Contact

SESSION = object()


class Time:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def met(time: Time, contact: Contact, beat: int = 1, takes_s: float = 0.1) -> None:
    """A heartbeat, answered a little later."""
    contact.sending(SESSION, beat)
    time.s += takes_s
    contact.answered(SESSION, beat)


def test_it_counts_from_when_the_heartbeat_was_sent() -> None:
    contact = Contact(time := Time())
    assert contact.at_s == NEVER
    met(time, contact, takes_s=7)
    assert contact.at_s == 100 and contact.renewed.is_set()


def test_a_welcome_is_contact() -> None:
    contact = Contact(time := Time())
    met(time, contact, HELLO)
    assert contact.at_s == 100


def test_an_answer_to_nothing_is_none() -> None:
    contact = Contact(Time())
    contact.sending(object(), 1)
    contact.answered(SESSION, 1)  # of another session
    contact.answered(SESSION, 2)
    assert contact.at_s == NEVER and not contact.renewed.is_set()


def test_answers_out_of_order_never_put_it_back() -> None:
    contact = Contact(time := Time())
    contact.sending(SESSION, 1)
    time.s += 5
    contact.sending(SESSION, 2)
    contact.answered(SESSION, 2)
    contact.answered(SESSION, 1)
    assert contact.at_s == 105


def test_an_attempt_keeps_up_with_contact_until_it_is_submitted() -> None:
    contact = Contact(time := Time())
    met(time, contact)
    contact.begin("a-1", 60, contact.at_s)
    for beat in range(2, 20):
        time.s += 30
        met(time, contact, beat)
    assert contact.of("a-1") == contact.at_s


def test_after_one_silence_too_long_no_contact_helps() -> None:
    contact = Contact(time := Time())
    met(time, contact)
    contact.begin("a-1", 60, contact.at_s)
    time.s += 61
    met(time, contact, 2)
    assert contact.of("a-1") is None
    contact.begin("b-1", 60, contact.at_s)  # one accepted after it
    assert contact.of("b-1") == contact.at_s


def test_a_command_that_was_long_under_way_counts_from_its_arrival() -> None:
    """Read before the silence, looked at after it: the machine slept in between."""
    contact = Contact(time := Time())
    met(time, contact)
    arrived_with = contact.at_s
    time.s += 3600
    met(time, contact, 2)
    contact.begin("a-1", 60, arrived_with)
    assert contact.of("a-1") is None


def test_an_attempt_of_an_earlier_life_had_no_contact() -> None:
    contact = Contact(time := Time())
    met(time, contact)
    contact.begin("a-1", 60, NEVER)
    assert contact.of("a-1") is None


def test_without_a_deadline_nothing_is_watched() -> None:
    contact = Contact(Time())
    contact.begin("a-1", 0, NEVER)
    assert contact.of("a-1") == NEVER
