"""The frames of the handshake and every reason it can end with. Frozen; no protobuf here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1
HELLO_WAIT_MS = 10_000
WELCOME_WAIT_MS = 10_000
SILENT_HEARTBEATS_REPLACED = 2
SILENT_HEARTBEATS_REDIAL = 3


class SessionCode(StrEnum):
    """Every reason for which a session does not come about, or ends."""

    TLS_TOO_OLD = "tls_too_old"
    CERTIFICATE_MISSING = "certificate_missing"
    CERTIFICATE_FOREIGN = "certificate_foreign"
    CERTIFICATE_NOT_YET_VALID = "certificate_not_yet_valid"
    CERTIFICATE_EXPIRED = "certificate_expired"
    CERTIFICATE_REVOKED = "certificate_revoked"
    CLUSTER_MISMATCH = "cluster_mismatch"
    CLUSTER_UNKNOWN = "cluster_unknown"
    CLUSTER_REMOVED = "cluster_removed"
    HELLO_INVALID = "hello_invalid"
    HELLO_LATE = "hello_late"
    PROTOCOL_MISMATCH = "protocol_mismatch"
    NOT_READY = "not_ready"
    NOT_LEADER = "not_leader"
    STALE_EPOCH = "stale_epoch"
    SESSION_EXISTS = "session_exists"
    SESSION_REPLACED = "session_replaced"
    UNEXPECTED_FRAME = "unexpected_frame"
    WELCOME_INVALID = "welcome_invalid"
    WELCOME_LATE = "welcome_late"
    BROKER_SILENT = "broker_silent"
    SHUTTING_DOWN = "shutting_down"
    STREAM_LOST = "stream_lost"

    @property
    def retry(self) -> bool:
        """Whether the agent may try again by itself; False: a person has to act first.

        An expired certificate may be tried again: the agent renews it before it does.
        """
        return self not in _NEEDS_A_PERSON


_NEEDS_A_PERSON = frozenset(
    {
        SessionCode.TLS_TOO_OLD,
        SessionCode.CERTIFICATE_MISSING,
        SessionCode.CERTIFICATE_FOREIGN,
        SessionCode.CERTIFICATE_REVOKED,
        SessionCode.CLUSTER_MISMATCH,
        SessionCode.CLUSTER_UNKNOWN,
        SessionCode.CLUSTER_REMOVED,
        SessionCode.HELLO_INVALID,
        SessionCode.PROTOCOL_MISMATCH,
        SessionCode.WELCOME_INVALID,
        # Whoever took over is alive: dialling again would only throw each other out.
        SessionCode.SESSION_REPLACED,
    }
)

# Frames ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """The agent's first frame; fields as in session.proto."""

    cluster: str
    instance: str
    journal: str
    protocol_min: int = PROTOCOL_MIN
    protocol_max: int = PROTOCOL_MAX
    event_seq: int = 0
    event_seq_acked: int = 0
    dispatch_seq: int = 0
    epoch: int = 0
    capabilities: tuple[str, ...] = ()
    scheduler: str = ""
    isolation: str = ""
    version: str = ""
    sealing_key: bytes = b""
    connect_ms: int = 0
    live_attempts: int = 0


@dataclass(frozen=True, slots=True)
class TicketKey:
    """An Ed25519 public key (32 bytes) that tickets may be signed with."""

    kid: str
    public_key: bytes


@dataclass(frozen=True, slots=True)
class Welcome:
    """The broker's answer to a Hello it takes; fields as in session.proto."""

    protocol: int
    epoch: int
    server_time_ms: int
    addresses: tuple[str, ...]
    ticket_keys: tuple[TicketKey, ...]
    resume_event_seq: int
    heartbeat_ms: int
    report_bytes_max: int
    api_url: str


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The broker's last frame. `code` is a SessionCode, or one a newer broker knows."""

    code: str
    text: str
    retry: bool
    redirect: str = ""
