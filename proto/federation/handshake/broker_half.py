"""The broker's handlers of the handshake, and its judgement of a certificate."""

from __future__ import annotations

import dataclasses

from federation.handshake.frames import (
    HELLO_WAIT_MS,
    SILENT_HEARTBEATS_REPLACED,
    Goodbye,
    Hello,
    SessionCode,
    Welcome,
)
from federation.handshake.values import (
    Accepting,
    AwaitingHello,
    BrokerSession,
    BrokerView,
    Closed,
    EndOther,
    Established,
    FrameArrived,
    HelloArrived,
    KnownCluster,
    LeavingOffice,
    Over,
    Peer,
    PeerConnected,
    Rechecked,
    Send,
    Step,
    Superseded,
    ago,
)

TLS_VERSION = "TLSv1.3"
TEXT_MAX = 256
KEY_BYTES = 32


def judge(peer: Peer, known: KnownCluster | None, now_ms: int) -> tuple[SessionCode, str] | None:
    """Why this certificate opens no session now; None when it does.

    The one text of it: for the handshake, the recheck of each minute, and the session check
    that an agent asks for when TLS has thrown it out without a word.
    """
    if peer.tls_version != TLS_VERSION:
        return SessionCode.TLS_TOO_OLD, (
            f"TLS 1.3 is needed, this peer speaks {peer.tls_version or 'an unknown version'}"
        )
    if not peer.cluster:
        return SessionCode.CERTIFICATE_MISSING, "the peer shows no certificate of an agent"
    if now_ms > peer.not_after_ms:
        return SessionCode.CERTIFICATE_EXPIRED, (
            f"the certificate of {peer.cluster} expired {ago(now_ms - peer.not_after_ms)} ago; "
            "it may only renew"
        )
    if now_ms < peer.not_before_ms:
        return SessionCode.CERTIFICATE_NOT_YET_VALID, (
            f"the certificate of {peer.cluster} begins in {ago(peer.not_before_ms - now_ms)}; "
            "is the broker's clock right?"
        )
    if known is None:
        return SessionCode.CLUSTER_UNKNOWN, (
            f"cluster {peer.cluster} is not of this federation; ask its operator for an invitation"
        )
    if known.state == "removed":
        return SessionCode.CLUSTER_REMOVED, f"cluster {peer.cluster} was removed by the operator"
    if peer.issued_ms < known.joined_ms or peer.serial in known.revoked_serials:
        return SessionCode.CERTIFICATE_REVOKED, (
            f"the certificate {peer.serial} of {peer.cluster} was revoked; join again with a new "
            "invitation"
        )
    return None


def _admissible(peer: Peer, view: BrokerView) -> tuple[SessionCode, str] | None:
    if view.known is None and not view.ready:
        return SessionCode.NOT_READY, "this broker is still reading its records; try again"
    return judge(peer, view.known, view.now_ms)


def peer_connected(_: Accepting, event: PeerConnected) -> Step:
    """A peer came through TLS: look at its certificate."""
    verdict = _admissible(event.peer, event.view)
    if verdict:
        return refuse(*verdict)
    return Step(AwaitingHello(event.peer, event.view.now_ms))


def hello_arrived(state: AwaitingHello, event: HelloArrived) -> Step:
    """The agent greets: welcome it, or refuse with a reason."""
    hello, view = event.hello, event.view
    verdict = (
        _admissible(state.peer, view)
        or _malformed(hello)
        or _wrong_cluster(state.peer, hello)
        or _not_leading(view)
        or _broker_stale(hello, view)
        or _no_common_protocol(hello, view)
        or _taken(hello, view)
    )
    if verdict:
        elsewhere = verdict[0] is SessionCode.NOT_LEADER
        return refuse(*verdict, redirect=view.leader_address if elsewhere else "")
    return _establish(state.peer, hello, view)


def _establish(peer: Peer, hello: Hello, view: BrokerView) -> Step:
    known, offer = view.known, view.offer
    assert known is not None, "judge refuses unknown clusters"
    session = BrokerSession(
        hello=hello,
        peer=peer,
        protocol=min(hello.protocol_max, offer.protocol_max),
        epoch=view.epoch,
        resume_event_seq=known.event_seq,
        disk_replaced=(known.journal not in ("", hello.journal))
        or hello.event_seq < known.event_seq,
        books_behind=hello.event_seq_acked > known.event_seq,
        heard_ms=view.now_ms,
    )
    welcome = Welcome(
        protocol=session.protocol,
        epoch=view.epoch,
        server_time_ms=view.now_ms,
        addresses=offer.addresses,
        ticket_keys=offer.ticket_keys,
        resume_event_seq=known.event_seq,
        heartbeat_ms=offer.heartbeat_ms,
        report_bytes_max=offer.report_bytes_max,
        api_url=offer.api_url,
    )
    other = (EndOther(view.live.instance),) if view.live else ()
    return Step(session, (*other, Send(welcome), Established(session)))


def _malformed(hello: Hello) -> tuple[SessionCode, str] | None:
    for name in ("cluster", "instance", "journal"):
        if not 0 < len(getattr(hello, name)) <= TEXT_MAX:
            return SessionCode.HELLO_INVALID, f"{name} of the hello is empty or too long"
    if hello.event_seq_acked > hello.event_seq:
        return SessionCode.HELLO_INVALID, "the hello has acknowledged events it never wrote"
    if len(hello.sealing_key) not in (0, KEY_BYTES):
        return SessionCode.HELLO_INVALID, "the sealing key of the hello is not 32 bytes"
    if len(hello.capabilities) > TEXT_MAX:
        return SessionCode.HELLO_INVALID, "the hello names too many capabilities"
    return None


def _wrong_cluster(peer: Peer, hello: Hello) -> tuple[SessionCode, str] | None:
    if hello.cluster == peer.cluster:
        return None
    return SessionCode.CLUSTER_MISMATCH, (
        f"the hello is from cluster {hello.cluster}, its certificate is of {peer.cluster}"
    )


def _not_leading(view: BrokerView) -> tuple[SessionCode, str] | None:
    if view.leading:
        return None
    where = f"; speak to {view.leader_address}" if view.leader_address else ", nor knows who does"
    return SessionCode.NOT_LEADER, f"this broker does not lead{where}"


def _broker_stale(hello: Hello, view: BrokerView) -> tuple[SessionCode, str] | None:
    if hello.epoch <= view.epoch:
        return None
    return SessionCode.STALE_EPOCH, (
        f"this broker leads epoch {view.epoch}, the agent has seen {hello.epoch}"
    )


def _no_common_protocol(hello: Hello, view: BrokerView) -> tuple[SessionCode, str] | None:
    low, high = view.offer.protocol_min, view.offer.protocol_max
    if max(low, hello.protocol_min) <= min(high, hello.protocol_max):
        return None
    return SessionCode.PROTOCOL_MISMATCH, (
        f"this broker speaks protocol {low} to {high}, the agent {hello.protocol_min} to "
        f"{hello.protocol_max}; upgrade the older of the two"
    )


def _taken(hello: Hello, view: BrokerView) -> tuple[SessionCode, str] | None:
    live = view.live
    if live is None or live.instance == hello.instance:
        return None
    if live.silent_ms > SILENT_HEARTBEATS_REPLACED * view.offer.heartbeat_ms:
        return None
    return SessionCode.SESSION_EXISTS, (
        f"cluster {hello.cluster} already has a session, of instance {live.instance}, heard from "
        f"{ago(live.silent_ms)} ago; stop the other agent, or wait until it is silent"
    )


def heard(state: BrokerSession, event: FrameArrived) -> Step:
    """A frame came: the agent lives."""
    return Step(dataclasses.replace(state, heard_ms=event.now_ms))


def recheck_waiting(state: AwaitingHello, event: Rechecked) -> Step:
    """Look again at one that has not greeted yet."""
    if event.view.now_ms - state.since_ms > HELLO_WAIT_MS:
        return refuse(SessionCode.HELLO_LATE, f"no hello within {HELLO_WAIT_MS // 1000} s")
    verdict = _admissible(state.peer, event.view)
    return refuse(*verdict) if verdict else Step(state)


def recheck_session(state: BrokerSession, event: Rechecked) -> Step:
    """Look again at the certificate of one whose session stands."""
    verdict = _admissible(state.peer, event.view)
    return refuse(*verdict) if verdict else Step(state)


def superseded(state: BrokerSession, _: Superseded) -> Step:
    """A newer session of the same cluster took over."""
    return refuse(
        SessionCode.SESSION_REPLACED, f"a newer session of {state.peer.cluster} took over"
    )


def leaving(_: AwaitingHello | BrokerSession, event: LeavingOffice) -> Step:
    """This broker stops, or leads no more."""
    if event.stopping:
        return refuse(SessionCode.SHUTTING_DOWN, "this broker is stopping", event.successor)
    return refuse(SessionCode.NOT_LEADER, "this broker does not lead any more", event.successor)


def refuse(code: SessionCode, text: str, redirect: str = "") -> Step:
    """End it from our side; `text` is one line for people."""
    over = Over(code, text, code.retry, redirect)
    return Step(over, (Send(Goodbye(code, text, code.retry, redirect)), Closed(over)))
