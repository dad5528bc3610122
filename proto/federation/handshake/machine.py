"""Both halves of the handshake: one total table, no I/O, no clock.

`step` takes a state and an event and gives the next state and what to do, in that order. A row
is a handler, `Ignore` (nothing happens, and why that is right) or `Reject` (the other side, or
the shell, did what cannot be: the conversation ends with this reason).

One live session per cluster: the same instance (a renewed certificate opens a second stream)
and any instance after two silent heartbeats take over; another instance while the first is
heard from is refused, because two agents with one identity are a mistake that a person has to
see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from federation.handshake import agent_half, broker_half
from federation.handshake.frames import SessionCode
from federation.handshake.values import (
    Accepting,
    AgentEvent,
    AgentSession,
    AgentState,
    AwaitingHello,
    AwaitingWelcome,
    BrokerEvent,
    BrokerSession,
    BrokerState,
    Dialling,
    FrameArrived,
    GoodbyeArrived,
    HelloArrived,
    LeavingOffice,
    LiveSession,
    Output,
    Over,
    PeerConnected,
    Rechecked,
    Step,
    StreamEnded,
    StreamOpened,
    Superseded,
    TimePassed,
    UpdateArrived,
    WelcomeArrived,
)


@dataclass(frozen=True, slots=True)
class Ignore:
    """A row in which nothing happens."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that ends the conversation."""

    code: SessionCode
    text: str


Handler = Callable[[Any, Any], Step]
Row = Handler | Ignore | Reject


def step(state: BrokerState | AgentState, event: BrokerEvent | AgentEvent) -> Step:
    """What this event means in this state.

    Raises KeyError when the event belongs to the other half: a fault of the caller.
    """
    row = TABLE[type(state), type(event)]
    if isinstance(row, Ignore):
        return Step(state)
    if isinstance(row, Reject):
        broker = isinstance(state, Accepting | AwaitingHello | BrokerSession)
        return (
            broker_half.refuse(row.code, row.text)
            if broker
            else agent_half.hang_up(row.code, row.text)
        )
    return row(state, event)


class BrokerHandshake:
    """The broker's half of one conversation: keeps its state, gives back what to do."""

    def __init__(self) -> None:
        self.state: BrokerState = Accepting()

    def take(self, event: BrokerEvent) -> tuple[Output, ...]:
        """See `step`."""
        done = step(self.state, event)
        self.state = done.state  # type: ignore[assignment]  # rows of one half stay in it
        return done.outputs

    def live(self, now_ms: int) -> LiveSession | None:
        """This conversation as another one of the same cluster sees it."""
        if not isinstance(self.state, BrokerSession):
            return None
        return LiveSession(self.state.hello.instance, now_ms - self.state.heard_ms)


class AgentHandshake:
    """The agent's half of one conversation: keeps its state, gives back what to do."""

    def __init__(self) -> None:
        self.state: AgentState = Dialling()

    def take(self, event: AgentEvent) -> tuple[Output, ...]:
        """See `step`."""
        done = step(self.state, event)
        self.state = done.state  # type: ignore[assignment]  # rows of one half stay in it
        return done.outputs


def _lost(_: Any, event: StreamEnded) -> Step:
    return agent_half.hang_up(SessionCode.STREAM_LOST, event.why)


_OVER = Ignore("the conversation is over")
_HELLO_FIRST = Reject(SessionCode.UNEXPECTED_FRAME, "a hello has to come first")
_ONE_HELLO = Reject(SessionCode.UNEXPECTED_FRAME, "a second hello in one session")
_ONE_PEER = Reject(SessionCode.UNEXPECTED_FRAME, "the peer of a stream does not change")
_NO_PEER = Reject(SessionCode.CERTIFICATE_MISSING, "nothing is known of this peer")
_WELCOME_FIRST = Reject(SessionCode.UNEXPECTED_FRAME, "a welcome has to come first")
_ONE_WELCOME = Reject(SessionCode.UNEXPECTED_FRAME, "a second welcome in one session")
_ONE_STREAM = Reject(SessionCode.UNEXPECTED_FRAME, "the stream was opened twice")
_NO_STREAM = Reject(SessionCode.UNEXPECTED_FRAME, "a frame without a stream")

TABLE: Mapping[tuple[type, type], Row] = {
    (Accepting, PeerConnected): broker_half.peer_connected,
    (Accepting, HelloArrived): _NO_PEER,
    (Accepting, FrameArrived): _NO_PEER,
    (Accepting, Rechecked): Ignore("nothing to look at before the peer is known"),
    (Accepting, Superseded): Ignore("holds no session another could take over"),
    (Accepting, LeavingOffice): Ignore("the refusal follows on the hello, with the address"),
    (Accepting, StreamEnded): _lost,
    (AwaitingHello, PeerConnected): _ONE_PEER,
    (AwaitingHello, HelloArrived): broker_half.hello_arrived,
    (AwaitingHello, FrameArrived): _HELLO_FIRST,
    (AwaitingHello, Rechecked): broker_half.recheck_waiting,
    (AwaitingHello, Superseded): Ignore("holds no session another could take over"),
    (AwaitingHello, LeavingOffice): broker_half.leaving,
    (AwaitingHello, StreamEnded): _lost,
    (BrokerSession, PeerConnected): _ONE_PEER,
    (BrokerSession, HelloArrived): _ONE_HELLO,
    (BrokerSession, FrameArrived): broker_half.heard,
    (BrokerSession, Rechecked): broker_half.recheck_session,
    (BrokerSession, Superseded): broker_half.superseded,
    (BrokerSession, LeavingOffice): broker_half.leaving,
    (BrokerSession, StreamEnded): _lost,
    **{(Over, e): _OVER for e in (PeerConnected, HelloArrived, FrameArrived, Rechecked)},
    **{(Over, e): _OVER for e in (Superseded, LeavingOffice, StreamEnded)},
    (Dialling, StreamOpened): agent_half.stream_opened,
    (Dialling, WelcomeArrived): _NO_STREAM,
    (Dialling, GoodbyeArrived): _NO_STREAM,
    (Dialling, UpdateArrived): _NO_STREAM,
    (Dialling, TimePassed): Ignore("how long to dial is the dialler's business"),
    (Dialling, StreamEnded): _lost,
    (AwaitingWelcome, StreamOpened): _ONE_STREAM,
    (AwaitingWelcome, WelcomeArrived): agent_half.welcome_arrived,
    (AwaitingWelcome, GoodbyeArrived): agent_half.goodbye_arrived,
    (AwaitingWelcome, UpdateArrived): _WELCOME_FIRST,
    (AwaitingWelcome, TimePassed): agent_half.waited,
    (AwaitingWelcome, StreamEnded): _lost,
    (AgentSession, StreamOpened): _ONE_STREAM,
    (AgentSession, WelcomeArrived): _ONE_WELCOME,
    (AgentSession, GoodbyeArrived): agent_half.goodbye_arrived,
    (AgentSession, UpdateArrived): agent_half.update_arrived,
    (AgentSession, TimePassed): agent_half.listened,
    (AgentSession, StreamEnded): _lost,
    **{(Over, e): _OVER for e in (StreamOpened, WelcomeArrived, GoodbyeArrived)},
    **{(Over, e): _OVER for e in (UpdateArrived, TimePassed)},
}
