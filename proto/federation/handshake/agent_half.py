"""The agent's handlers of the handshake."""

from __future__ import annotations

import dataclasses

from federation.handshake.frames import (
    SILENT_HEARTBEATS_REDIAL,
    WELCOME_WAIT_MS,
    Hello,
    SessionCode,
    Welcome,
)
from federation.handshake.values import (
    AgentSession,
    AgentState,
    AwaitingWelcome,
    BrokerClock,
    Closed,
    Dialling,
    Established,
    GoodbyeArrived,
    Over,
    Remember,
    Send,
    Step,
    StreamOpened,
    TimePassed,
    UpdateArrived,
    WelcomeArrived,
    ago,
)

_KEY_BYTES = 32


def stream_opened(_: Dialling, event: StreamOpened) -> Step:
    """A stream to a broker stands: greet it."""
    return Step(AwaitingWelcome(event.hello, event.monotonic_ms), (Send(event.hello),))


def welcome_arrived(state: AwaitingWelcome, event: WelcomeArrived) -> Step:
    """The broker greets back: a session, unless what it says cannot be."""
    welcome, hello = event.welcome, state.hello
    if welcome.epoch < hello.epoch:
        return hang_up(
            SessionCode.STALE_EPOCH,
            f"the broker leads epoch {welcome.epoch}, this agent has seen {hello.epoch}",
        )
    if problem := _bad_welcome(welcome, hello):
        return hang_up(SessionCode.WELCOME_INVALID, problem)
    session = AgentSession(
        protocol=welcome.protocol,
        epoch=welcome.epoch,
        clock=BrokerClock(welcome.server_time_ms, event.monotonic_ms),
        addresses=welcome.addresses,
        ticket_keys={k.kid: k.public_key for k in welcome.ticket_keys},
        resume_event_seq=welcome.resume_event_seq,
        heartbeat_ms=welcome.heartbeat_ms,
        report_bytes_max=welcome.report_bytes_max,
        api_url=welcome.api_url,
        disk_replaced=welcome.resume_event_seq > hello.event_seq,
        heard_monotonic_ms=event.monotonic_ms,
    )
    remember = Remember(welcome.epoch, welcome.addresses)
    return Step(session, (remember, Established(session)))


def _bad_welcome(welcome: Welcome, hello: Hello) -> str | None:
    if not hello.protocol_min <= welcome.protocol <= hello.protocol_max:
        return f"the broker chose protocol {welcome.protocol}, which was not offered"
    if not welcome.ticket_keys:
        return "the broker's welcome names no ticket key"
    if any(len(k.public_key) != _KEY_BYTES for k in welcome.ticket_keys):
        return "a ticket key in the broker's welcome is not 32 bytes"
    if welcome.heartbeat_ms <= 0 or welcome.report_bytes_max <= 0:
        return "the broker's welcome has a limit that is not positive"
    return None


def goodbye_arrived(_: AwaitingWelcome | AgentSession, event: GoodbyeArrived) -> Step:
    """The broker ends it and says why."""
    said = event.goodbye
    over = Over(said.code, said.text, said.retry, said.redirect)
    return Step(over, (Closed(over),))


def update_arrived(state: AgentSession, event: UpdateArrived) -> Step:
    """A frame with epoch and time; one of an older epoch ends the session."""
    if event.epoch < state.epoch:
        return hang_up(
            SessionCode.STALE_EPOCH,
            f"a frame of epoch {event.epoch} came after one of epoch {state.epoch}",
        )
    following = dataclasses.replace(
        state,
        epoch=event.epoch,
        clock=state.clock.told(event.server_time_ms, event.monotonic_ms),
        heard_monotonic_ms=event.monotonic_ms,
    )
    return Step(following, (Remember(event.epoch, ()),) if event.epoch > state.epoch else ())


def waited(state: AwaitingWelcome, event: TimePassed) -> Step:
    """Time passed without a welcome."""
    if event.monotonic_ms - state.since_monotonic_ms <= WELCOME_WAIT_MS:
        return Step(state)
    return hang_up(SessionCode.WELCOME_LATE, f"no welcome within {WELCOME_WAIT_MS // 1000} s")


def listened(state: AgentSession, event: TimePassed) -> Step:
    """Time passed without a word from the broker."""
    silent_ms = event.monotonic_ms - state.heard_monotonic_ms
    if silent_ms <= SILENT_HEARTBEATS_REDIAL * state.heartbeat_ms:
        return Step(state)
    return hang_up(SessionCode.BROKER_SILENT, f"the broker was silent for {ago(silent_ms)}")


def patience_ms(state: AgentState, monotonic_ms: int) -> int:
    """How long nothing may be heard before `waited` or `listened` ends it; at least 1."""
    due_ms = monotonic_ms
    if isinstance(state, AwaitingWelcome):
        due_ms = state.since_monotonic_ms + WELCOME_WAIT_MS
    elif isinstance(state, AgentSession):
        due_ms = state.heard_monotonic_ms + SILENT_HEARTBEATS_REDIAL * state.heartbeat_ms
    return max(due_ms - monotonic_ms, 0) + 1


def hang_up(code: SessionCode, text: str) -> Step:
    """End it from our side; `text` is one line for people."""
    over = Over(code, text, code.retry)
    return Step(over, (Closed(over),))
