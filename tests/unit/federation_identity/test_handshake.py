"""The handshake: every state against every event, each refusal, both halves talking."""

import dataclasses
import itertools
import re
from typing import get_args

import pytest

from federation.handshake.broker_half import judge
from federation.handshake.frames import (
    HELLO_WAIT_MS,
    WELCOME_WAIT_MS,
    Goodbye,
    Hello,
    SessionCode,
    TicketKey,
    Welcome,
)
from federation.handshake.machine import (
    TABLE,
    AgentHandshake,
    BrokerHandshake,
    Ignore,
    Reject,
    step,
)
from federation.handshake.values import (
    Accepting,
    AgentEvent,
    AgentSession,
    AgentState,
    AwaitingHello,
    AwaitingWelcome,
    BrokerClock,
    BrokerEvent,
    BrokerSession,
    BrokerState,
    BrokerView,
    Closed,
    Dialling,
    EndOther,
    Established,
    FrameArrived,
    GoodbyeArrived,
    HelloArrived,
    KnownCluster,
    LeavingOffice,
    LiveSession,
    Offer,
    Over,
    Peer,
    PeerConnected,
    Rechecked,
    Remember,
    Send,
    Step,
    StreamEnded,
    StreamOpened,
    Superseded,
    TimePassed,
    UpdateArrived,
    WelcomeArrived,
)

NOW = 1_800_000_000_000
HOUR = 3_600_000
KEYS = (TicketKey("a" * 16, b"a" * 32), TicketKey("b" * 16, b"b" * 32))


def peer(**changes) -> Peer:
    base = Peer("TLSv1.3", "eu", "0a", NOW - HOUR, NOW + HOUR, NOW - HOUR)
    return dataclasses.replace(base, **changes)


def hello(**changes) -> Hello:
    base = Hello("eu", "one", "disk-1", event_seq=40, event_seq_acked=30, epoch=7)
    return dataclasses.replace(base, **changes)


def view(**changes) -> BrokerView:
    base = BrokerView(
        now_ms=NOW,
        epoch=7,
        offer=Offer(("b1:443", "b2:443"), KEYS, "https://b1"),
        known=KnownCluster("joined", "disk-1", 30),
    )
    return dataclasses.replace(base, **changes)


def welcome(**changes) -> Welcome:
    base = Welcome(1, 7, NOW, ("b1:443",), KEYS, 30, 5_000, 1_000, "https://b1")
    return dataclasses.replace(base, **changes)


STATES = {
    Accepting: Accepting(),
    AwaitingHello: AwaitingHello(peer(), NOW),
    BrokerSession: BrokerSession(hello(), peer(), 1, 7, 30, False, False, NOW),
    Dialling: Dialling(),
    AwaitingWelcome: AwaitingWelcome(hello(), 1_000),
    AgentSession: AgentSession(
        1, 7, BrokerClock(NOW, 0), (), {}, 30, 5_000, 1_000, "", False, 1_000
    ),
    Over: Over("stream_lost", "gone", True),
}
EVENTS = {
    PeerConnected: PeerConnected(peer(), view()),
    HelloArrived: HelloArrived(hello(), view()),
    FrameArrived: FrameArrived(NOW),
    Rechecked: Rechecked(view()),
    Superseded: Superseded(),
    LeavingOffice: LeavingOffice("b2:443", stopping=False),
    StreamOpened: StreamOpened(hello(), 0),
    WelcomeArrived: WelcomeArrived(welcome(), 0),
    GoodbyeArrived: GoodbyeArrived(Goodbye("new_code", "text", True)),
    UpdateArrived: UpdateArrived(7, NOW, 2_000),
    TimePassed: TimePassed(2_000),
    StreamEnded: StreamEnded("reset"),
}
PRODUCT = {
    *itertools.product(get_args(BrokerState), get_args(BrokerEvent)),
    *itertools.product(get_args(AgentState), get_args(AgentEvent)),
}


def test_the_table_is_total_and_holds_nothing_else():
    assert set(TABLE) == PRODUCT


@pytest.mark.parametrize(("state", "event"), sorted(PRODUCT, key=str))
def test_every_row_leads_to_a_state_of_its_own_half_and_says_why_it_ends(state, event):
    broker = state in get_args(BrokerState) and event in get_args(BrokerEvent)
    done = step(STATES[state], EVENTS[event])
    assert isinstance(done.state, BrokerState if broker else AgentState)
    row = TABLE[state, event]
    if isinstance(row, Ignore):
        assert done == Step(STATES[state]) and row.reason
    if isinstance(row, Reject):
        assert done.state == Over(row.code, row.text, row.code.retry)
    if isinstance(done.state, Over) and state is not Over:
        assert isinstance(done.outputs[-1], Closed)
        assert done.state.text and "\n" not in done.state.text
    if state is Over:
        assert done == Step(STATES[Over]), "nothing is said after the end"


def test_an_event_of_the_other_half_is_a_fault_of_the_caller():
    with pytest.raises(KeyError):
        step(Accepting(), TimePassed(1))


def greet(a_hello=None, a_view=None, a_peer=None):
    """Outputs of the broker for a hello, after a peer it has nothing against."""
    broker = BrokerHandshake()
    assert broker.take(PeerConnected(a_peer or peer(), view())) == ()
    return broker, broker.take(HelloArrived(a_hello or hello(), a_view or view()))


def goodbye_of(outputs) -> Goodbye:
    said, closed = outputs
    assert isinstance(said, Send) and isinstance(said.frame, Goodbye)
    assert isinstance(closed, Closed) and closed.over.code == said.frame.code
    assert closed.over.retry == said.frame.retry == SessionCode(said.frame.code).retry
    return said.frame


def test_a_good_hello_gets_what_a_session_needs():
    broker, outputs = greet()
    said, established = outputs
    assert said.frame == Welcome(
        1, 7, NOW, ("b1:443", "b2:443"), KEYS, 30, 5_000, 262_144, "https://b1"
    )
    assert established == Established(broker.state)
    assert not broker.state.disk_replaced and not broker.state.books_behind


PEERS = [
    ({"tls_version": "TLSv1.2"}, {}, "tls_too_old", False),
    ({"tls_version": ""}, {}, "tls_too_old", False),
    ({"cluster": ""}, {}, "certificate_missing", False),
    ({"not_after_ms": NOW - 1}, {}, "certificate_expired", True),
    ({"not_before_ms": NOW + 1}, {}, "certificate_not_yet_valid", True),
    ({}, {"known": None}, "cluster_unknown", False),
    ({}, {"known": KnownCluster("removed")}, "cluster_removed", False),
    (
        {},
        {"known": KnownCluster("joined", revoked_serials=frozenset({"0a"}))},
        "certificate_revoked",
        False,
    ),
    (
        {},
        {"known": KnownCluster("joined", joined_ms=NOW - HOUR + 1)},
        "certificate_revoked",
        False,
    ),
]


@pytest.mark.parametrize(("of_peer", "of_view", "code", "retry"), PEERS)
def test_a_peer_that_may_not_is_told_why_before_any_hello(of_peer, of_view, code, retry):
    broker = BrokerHandshake()
    said = goodbye_of(broker.take(PeerConnected(peer(**of_peer), view(**of_view))))
    assert (said.code, said.retry) == (code, retry)
    assert broker.take(HelloArrived(hello(), view())) == (), "and nothing after"


@pytest.mark.parametrize(("of_peer", "of_view", "code", "retry"), PEERS[5:])
def test_what_changed_between_tls_and_hello_counts(of_peer, of_view, code, retry):
    _, outputs = greet(a_view=view(**of_view))
    assert goodbye_of(outputs).code == code


@pytest.mark.parametrize(("of_peer", "of_view", "code", "retry"), PEERS[5:])
def test_a_live_session_ends_at_the_next_recheck(of_peer, of_view, code, retry):
    broker, _ = greet()
    assert broker.take(Rechecked(view())) == ()
    assert goodbye_of(broker.take(Rechecked(view(**of_view)))).code == code


def test_a_certificate_that_expires_ends_its_session():
    broker, _ = greet()
    late = view(now_ms=NOW + HOUR + 5_000)
    said = goodbye_of(broker.take(Rechecked(late)))
    assert said == Goodbye(
        "certificate_expired", "the certificate of eu expired 5 s ago; it may only renew", True
    )


@pytest.mark.parametrize(
    ("of_hello", "of_view", "code", "words"),
    [
        ({"cluster": "us"}, {}, "cluster_mismatch", "from cluster us, its certificate is of eu"),
        ({"instance": ""}, {}, "hello_invalid", "instance"),
        ({"journal": "x" * 257}, {}, "hello_invalid", "journal"),
        ({"event_seq_acked": 41}, {}, "hello_invalid", "never wrote"),
        ({"sealing_key": b"short"}, {}, "hello_invalid", "sealing key"),
        ({"capabilities": ("x",) * 257}, {}, "hello_invalid", "capabilities"),
        ({"epoch": 8}, {}, "stale_epoch", "leads epoch 7, the agent has seen 8"),
        ({"protocol_min": 2, "protocol_max": 3}, {}, "protocol_mismatch", "1 to 1.*2 to 3"),
        ({"protocol_min": 3, "protocol_max": 1}, {}, "protocol_mismatch", "upgrade the older"),
        ({}, {"live": LiveSession("two", 10_000)}, "session_exists", "instance two.*10 s ago"),
        ({}, {"leading": False}, "not_leader", "nor knows who does"),
    ],
)
def test_a_hello_that_cannot_be_taken_is_told_why(of_hello, of_view, code, words):
    _, outputs = greet(hello(**of_hello), view(**of_view))
    said = goodbye_of(outputs)
    assert said.code == code
    assert said.redirect == ""
    assert re.search(words, said.text), said.text


def test_a_follower_names_the_leader():
    _, outputs = greet(a_view=view(leading=False, leader_address="b2:443"))
    said = goodbye_of(outputs)
    assert (said.code, said.redirect, said.retry) == ("not_leader", "b2:443", True)


@pytest.mark.parametrize(
    ("agent", "offered", "chosen"), [((1, 1), (1, 2), 1), ((1, 5), (2, 3), 3), ((2, 2), (1, 9), 2)]
)
def test_the_highest_common_protocol_is_spoken(agent, offered, chosen):
    offer = dataclasses.replace(view().offer, protocol_min=offered[0], protocol_max=offered[1])
    mine = hello(protocol_min=agent[0], protocol_max=agent[1])
    broker, _ = greet(mine, view(offer=offer))
    assert broker.state.protocol == chosen


@pytest.mark.parametrize(
    ("live", "taken_over"),
    [
        (LiveSession("one", 0), True),
        (LiveSession("two", 10_001), True),
        (LiveSession("two", 10_000), False),
    ],
)
def test_one_live_session_per_cluster(live, taken_over):
    broker, outputs = greet(a_view=view(live=live))
    assert isinstance(broker.state, BrokerSession) is taken_over
    if taken_over:
        assert outputs[0] == EndOther(live.instance), "the other ends before this one begins"
        assert isinstance(outputs[-1], Established)


def test_the_session_that_was_taken_over_says_goodbye():
    broker, _ = greet()
    said = goodbye_of(broker.take(Superseded()))
    assert (said.code, said.retry) == ("session_replaced", False)


def test_how_long_a_session_was_silent_is_counted_from_its_last_frame():
    broker, _ = greet()
    assert broker.live(NOW + 9_000) == LiveSession("one", 9_000)
    broker.take(FrameArrived(NOW + 8_000))
    assert broker.live(NOW + 9_000) == LiveSession("one", 1_000)
    broker.take(StreamEnded("reset"))
    assert broker.live(NOW + 9_000) is None
    assert BrokerHandshake().live(NOW) is None


@pytest.mark.parametrize(
    ("of_hello", "replaced"),
    [
        ({}, False),
        ({"journal": "disk-2"}, True),
        ({"event_seq": 29, "event_seq_acked": 29}, True),
        ({"event_seq": 30}, False),
    ],
)
def test_an_old_or_another_disk_is_noticed(of_hello, replaced):
    broker, _ = greet(hello(**of_hello))
    assert broker.state.disk_replaced is replaced


def test_the_first_journal_of_a_cluster_is_no_replacement():
    fresh = view(known=KnownCluster("invited"))
    broker, _ = greet(hello(event_seq=0, event_seq_acked=0), fresh)
    assert not broker.state.disk_replaced


def test_books_that_lost_what_they_acknowledged_are_noticed():
    broker, _ = greet(hello(event_seq_acked=35))
    assert broker.state.books_behind


def test_a_peer_that_says_nothing_is_not_kept():
    broker = BrokerHandshake()
    broker.take(PeerConnected(peer(), view()))
    assert broker.take(Rechecked(view(now_ms=NOW + HELLO_WAIT_MS))) == ()
    late = broker.take(Rechecked(view(now_ms=NOW + HELLO_WAIT_MS + 1)))
    assert goodbye_of(late).code == "hello_late"


@pytest.mark.parametrize(("stopping", "code"), [(True, "shutting_down"), (False, "not_leader")])
def test_a_broker_that_leaves_says_where_to_go(stopping, code):
    broker, _ = greet()
    said = goodbye_of(broker.take(LeavingOffice("b2:443", stopping=stopping)))
    assert (said.code, said.redirect, said.retry) == (code, "b2:443", True)


def test_a_broker_that_still_reads_its_records_does_not_call_a_cluster_unknown():
    reading = view(known=None, ready=False)
    said = goodbye_of(BrokerHandshake().take(PeerConnected(peer(), reading)))
    assert (said.code, said.retry) == ("not_ready", True)
    broker = BrokerHandshake()
    broker.take(PeerConnected(peer(), view()))
    assert goodbye_of(broker.take(HelloArrived(hello(), reading))).code == "not_ready"
    known = goodbye_of(BrokerHandshake().take(PeerConnected(peer(), view(known=None))))
    assert (known.code, known.retry) == ("cluster_unknown", False)


def test_every_code_says_whether_to_try_again():
    again = {c for c in SessionCode if c.retry}
    assert SessionCode.CERTIFICATE_EXPIRED in again, "the agent renews by itself"
    assert SessionCode.CERTIFICATE_REVOKED not in again
    assert judge(peer(), view().known, NOW) is None


# The agent's half


def dialled(**of_hello) -> AgentHandshake:
    agent = AgentHandshake()
    said = hello(**of_hello)
    assert agent.take(StreamOpened(said, 1_000)) == (Send(said),)
    return agent


def test_the_agent_remembers_epoch_and_addresses_before_it_works():
    agent = dialled()
    outputs = agent.take(WelcomeArrived(welcome(epoch=9), 1_200))
    assert outputs[0] == Remember(9, ("b1:443",))
    assert outputs[1] == Established(agent.state)
    assert agent.state.ticket_keys == {k.kid: k.public_key for k in KEYS}


def test_the_agent_takes_no_welcome_of_an_epoch_below_the_highest_it_ever_saw():
    agent = dialled(epoch=8)
    (closed,) = agent.take(WelcomeArrived(welcome(epoch=7), 1_200))
    assert (closed.over.code, closed.over.retry) == ("stale_epoch", True)
    assert closed.over.text == "the broker leads epoch 7, this agent has seen 8"


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": 2},
        {"ticket_keys": ()},
        {"ticket_keys": (TicketKey("k", b"short"),)},
        {"heartbeat_ms": 0},
        {"report_bytes_max": 0},
    ],
)
def test_a_welcome_the_agent_cannot_work_with_is_refused(changes):
    (closed,) = dialled().take(WelcomeArrived(welcome(**changes), 1_200))
    assert closed.over.code == "welcome_invalid"


def test_an_old_disk_is_noticed_by_the_agent_too():
    agent = dialled(event_seq=29, event_seq_acked=29)
    agent.take(WelcomeArrived(welcome(), 1_200))
    assert agent.state.disk_replaced
    agent = dialled()
    agent.take(WelcomeArrived(welcome(), 1_200))
    assert not agent.state.disk_replaced


def test_broker_time_goes_on_with_the_monotonic_clock_and_never_back():
    agent = dialled()
    agent.take(WelcomeArrived(welcome(), 1_200))
    assert agent.state.clock.now_ms(2_200) == NOW + 1_000
    agent.take(UpdateArrived(7, NOW + 1_500, 2_200))
    assert agent.state.clock.now_ms(2_200) == NOW + 1_500
    agent.take(UpdateArrived(7, NOW + 1_600, 4_200))
    assert agent.state.clock.now_ms(4_200) == NOW + 3_500, "a delayed frame sets nothing back"


def test_a_frame_of_an_older_epoch_ends_the_session_and_a_newer_one_is_remembered():
    agent = dialled()
    agent.take(WelcomeArrived(welcome(), 1_200))
    assert agent.take(UpdateArrived(8, NOW, 1_300)) == (Remember(8, ()),)
    (closed,) = agent.take(UpdateArrived(7, NOW, 1_400))
    assert closed.over.code == "stale_epoch"


def test_the_agent_waits_for_a_welcome_and_for_heartbeats_only_so_long():
    agent = dialled()
    assert agent.take(TimePassed(1_000 + WELCOME_WAIT_MS)) == ()
    (closed,) = agent.take(TimePassed(1_001 + WELCOME_WAIT_MS))
    assert (closed.over.code, closed.over.retry) == ("welcome_late", True)
    agent = dialled()
    agent.take(WelcomeArrived(welcome(), 1_200))
    assert agent.take(TimePassed(16_200)) == ()
    agent.take(UpdateArrived(7, NOW, 16_200))
    assert agent.take(TimePassed(31_200)) == ()
    (closed,) = agent.take(TimePassed(31_201))
    assert (closed.over.code, closed.over.retry) == ("broker_silent", True)


def test_a_goodbye_is_handed_on_also_with_a_code_of_a_newer_broker():
    said = Goodbye("of_the_future", "because", False, "b9:443")
    (closed,) = dialled().take(GoodbyeArrived(said))
    assert closed.over == Over("of_the_future", "because", False, "b9:443")


def test_both_halves_speak_to_each_other():
    agent, broker = AgentHandshake(), BrokerHandshake()
    broker.take(PeerConnected(peer(), view()))
    (says,) = agent.take(StreamOpened(hello(), 1_000))
    answers = broker.take(HelloArrived(says.frame, view()))
    frame = next(o.frame for o in answers if isinstance(o, Send))
    agent.take(WelcomeArrived(frame, 1_100))
    assert agent.state.epoch == broker.state.epoch == 7
    assert agent.state.resume_event_seq == broker.state.resume_event_seq == 30
