"""What the two halves of the handshake know and say: facts, states, events, outputs.

Everything is frozen. Times ending in `_ms` are broker time (UTC) at the broker, and named
`monotonic_ms` where they are an agent's own clock, which measures but tells no time of day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from federation.handshake.frames import (
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    Goodbye,
    Hello,
    TicketKey,
    Welcome,
)

# Facts the broker's shell brings along --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peer:
    """What TLS showed of the other side; `cluster` empty when the certificate is no agent's."""

    tls_version: str
    cluster: str
    serial: str
    not_before_ms: int
    not_after_ms: int
    issued_ms: int


@dataclass(frozen=True, slots=True)
class KnownCluster:
    """What the broker's books say of a cluster. `event_seq` is the last one committed.

    Certificates issued before `joined_ms` are void: it joined anew, with another key, or they
    were all revoked.
    """

    state: str
    journal: str = ""
    event_seq: int = 0
    revoked_serials: frozenset[str] = frozenset()
    joined_ms: int = 0


@dataclass(frozen=True, slots=True)
class LiveSession:
    """The session this broker already holds with the cluster."""

    instance: str
    silent_ms: int


@dataclass(frozen=True, slots=True)
class Offer:
    """What this broker says in every Welcome."""

    addresses: tuple[str, ...]
    ticket_keys: tuple[TicketKey, ...]
    api_url: str
    heartbeat_ms: int = 5_000
    report_bytes_max: int = 262_144
    protocol_min: int = PROTOCOL_MIN
    protocol_max: int = PROTOCOL_MAX


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The broker as it stands when an event arrives. `known` None: no such cluster, or none yet
    where the broker is not `ready`: it still reads its records."""

    now_ms: int
    epoch: int
    offer: Offer
    known: KnownCluster | None
    live: LiveSession | None = None
    ready: bool = True
    leading: bool = True
    leader_address: str = ""


@dataclass(frozen=True, slots=True)
class BrokerClock:
    """Broker time as an agent reckons it: the time it was told plus what has passed since.

    It lags by the way of the message, never leads.
    """

    server_time_ms: int
    at_monotonic_ms: int

    def now_ms(self, monotonic_ms: int) -> int:
        """Broker time (UTC ms) at this reading of the agent's monotonic clock."""
        return self.server_time_ms + monotonic_ms - self.at_monotonic_ms

    def told(self, server_time_ms: int, monotonic_ms: int) -> BrokerClock:
        """After another message: of two reckonings the later one travelled less long."""
        if server_time_ms <= self.now_ms(monotonic_ms):
            return self
        return BrokerClock(server_time_ms, monotonic_ms)


# States ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accepting:
    """Broker: a stream is there, nothing known of it."""


@dataclass(frozen=True, slots=True)
class AwaitingHello:
    """Broker: the peer's identity is in order; it has to say Hello."""

    peer: Peer
    since_ms: int


@dataclass(frozen=True, slots=True)
class BrokerSession:
    """Broker: established. `disk_replaced`: what this site runs has to be asked of it anew.

    `books_behind`: the agent was promised events that these books do not hold (restored state).
    """

    hello: Hello
    peer: Peer
    protocol: int
    epoch: int
    resume_event_seq: int
    disk_replaced: bool
    books_behind: bool
    heard_ms: int


@dataclass(frozen=True, slots=True)
class Dialling:
    """Agent: no stream yet."""


@dataclass(frozen=True, slots=True)
class AwaitingWelcome:
    """Agent: Hello is sent."""

    hello: Hello
    since_monotonic_ms: int


@dataclass(frozen=True, slots=True)
class AgentSession:
    """Agent: established. `ticket_keys` maps kid to public key, as `open_ticket` wants it.

    `disk_replaced`: the broker knows later events than this journal, so look up every attempt
    at the scheduler before launching anything, and number events from `resume_event_seq` on.
    """

    protocol: int
    epoch: int
    clock: BrokerClock
    addresses: tuple[str, ...]
    ticket_keys: Mapping[str, bytes]
    resume_event_seq: int
    heartbeat_ms: int
    report_bytes_max: int
    api_url: str
    disk_replaced: bool
    heard_monotonic_ms: int


@dataclass(frozen=True, slots=True)
class Over:
    """Either half: ended, and why."""

    code: str
    text: str
    retry: bool
    redirect: str = ""


BrokerState = Accepting | AwaitingHello | BrokerSession | Over
AgentState = Dialling | AwaitingWelcome | AgentSession | Over

# Events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """Broker: TLS is up; this is who it is."""

    peer: Peer
    view: BrokerView


@dataclass(frozen=True, slots=True)
class HelloArrived:
    """Broker: a Hello frame."""

    hello: Hello
    view: BrokerView


@dataclass(frozen=True, slots=True)
class FrameArrived:
    """Broker: any other frame; in a session its content is the session's business."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Rechecked:
    """Broker: look again, at least each minute and after a revocation."""

    view: BrokerView


@dataclass(frozen=True, slots=True)
class Superseded:
    """Broker: another session of the same cluster took over (its output `EndOther`)."""


@dataclass(frozen=True, slots=True)
class LeavingOffice:
    """Broker: it stops leading or stops altogether; `successor` is an address or empty."""

    successor: str
    stopping: bool


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """Agent: the stream is up; this is what to say. `hello.epoch` is the highest ever seen."""

    hello: Hello
    monotonic_ms: int


@dataclass(frozen=True, slots=True)
class WelcomeArrived:
    """Agent: a Welcome frame."""

    welcome: Welcome
    monotonic_ms: int


@dataclass(frozen=True, slots=True)
class GoodbyeArrived:
    """Agent: a Goodbye frame."""

    goodbye: Goodbye


@dataclass(frozen=True, slots=True)
class UpdateArrived:
    """Agent: the head of any later frame of the broker."""

    epoch: int
    server_time_ms: int
    monotonic_ms: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Agent: nothing happened; look at the clock."""

    monotonic_ms: int


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Either half: the stream is gone."""

    why: str


BrokerEvent = (
    PeerConnected
    | HelloArrived
    | FrameArrived
    | Rechecked
    | Superseded
    | LeavingOffice
    | StreamEnded
)
AgentEvent = (
    StreamOpened | WelcomeArrived | GoodbyeArrived | UpdateArrived | TimePassed | StreamEnded
)

# Outputs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Write this frame."""

    frame: Hello | Welcome | Goodbye


@dataclass(frozen=True, slots=True)
class Remember:
    """Agent: make the highest epoch and the brokers' addresses durable before anything else.

    `addresses` empty: keep those remembered.
    """

    epoch: int
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndOther:
    """Broker: hand `Superseded` to the session of this instance; then this one is the session."""

    instance: str


@dataclass(frozen=True, slots=True)
class Established:
    """The session stands, with these facts."""

    session: BrokerSession | AgentSession


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing more will be said; end the stream after what was sent."""

    over: Over


Output = Send | Remember | EndOther | Established | Closed


@dataclass(frozen=True, slots=True)
class Step:
    """The next state and what to do, in order."""

    state: BrokerState | AgentState
    outputs: tuple[Output, ...] = ()


def ago(span_ms: int) -> str:
    """A span for people: `40 s`, `3 min`, `5 h`, `12 days`."""
    seconds = max(0, span_ms) // 1000
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7_200:
        return f"{seconds // 60} min"
    return f"{seconds // 3_600} h" if seconds < 172_800 else f"{seconds // 86_400} days"
