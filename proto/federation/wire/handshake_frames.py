"""Frames of the handshake to and from protobuf."""

from __future__ import annotations

from federation.handshake.frames import Goodbye, Hello, TicketKey, Welcome
from federation.v1 import session_pb2 as session


def hello_to_wire(hello: Hello) -> session.AgentFrame:
    """The agent's first frame."""
    return session.AgentFrame(
        hello=session.Hello(
            protocol_min=hello.protocol_min,
            protocol_max=hello.protocol_max,
            cluster=hello.cluster,
            instance=hello.instance,
            journal=hello.journal,
            event_seq=hello.event_seq,
            event_seq_acked=hello.event_seq_acked,
            dispatch_seq=hello.dispatch_seq,
            epoch=hello.epoch,
            capabilities=hello.capabilities,
            scheduler=hello.scheduler,
            isolation=hello.isolation,
            version=hello.version,
            sealing_key=hello.sealing_key,
            connect_ms=hello.connect_ms,
            live_attempts=hello.live_attempts,
        )
    )


def hello_from_wire(said: session.Hello) -> Hello:
    """A Hello as the state machine takes it; whether it makes sense is judged there."""
    return Hello(
        cluster=said.cluster,
        instance=said.instance,
        journal=said.journal,
        protocol_min=said.protocol_min,
        protocol_max=said.protocol_max,
        event_seq=said.event_seq,
        event_seq_acked=said.event_seq_acked,
        dispatch_seq=said.dispatch_seq,
        epoch=said.epoch,
        capabilities=tuple(said.capabilities),
        scheduler=said.scheduler,
        isolation=said.isolation,
        version=said.version,
        sealing_key=said.sealing_key,
        connect_ms=said.connect_ms,
        live_attempts=said.live_attempts,
    )


def welcome_to_wire(welcome: Welcome) -> session.BrokerFrame:
    """The broker's first frame."""
    return session.BrokerFrame(
        welcome=session.Welcome(
            protocol=welcome.protocol,
            epoch=welcome.epoch,
            server_time_ms=welcome.server_time_ms,
            addresses=welcome.addresses,
            ticket_keys=[
                session.TicketKey(kid=k.kid, public_key=k.public_key) for k in welcome.ticket_keys
            ],
            resume_event_seq=welcome.resume_event_seq,
            heartbeat_ms=welcome.heartbeat_ms,
            report_bytes_max=welcome.report_bytes_max,
            api_url=welcome.api_url,
        )
    )


def welcome_from_wire(said: session.Welcome) -> Welcome:
    """A Welcome as the state machine takes it; whether it makes sense is judged there."""
    return Welcome(
        protocol=said.protocol,
        epoch=said.epoch,
        server_time_ms=said.server_time_ms,
        addresses=tuple(said.addresses),
        ticket_keys=tuple(TicketKey(k.kid, k.public_key) for k in said.ticket_keys),
        resume_event_seq=said.resume_event_seq,
        heartbeat_ms=said.heartbeat_ms,
        report_bytes_max=said.report_bytes_max,
        api_url=said.api_url,
    )


def goodbye_to_wire(goodbye: Goodbye) -> session.BrokerFrame:
    """The broker's last frame."""
    return session.BrokerFrame(
        goodbye=session.Goodbye(
            code=goodbye.code,
            text=goodbye.text,
            retry=goodbye.retry,
            redirect=goodbye.redirect,
        )
    )


def goodbye_from_wire(said: session.Goodbye) -> Goodbye:
    """A Goodbye; its code may be one only a newer broker knows."""
    return Goodbye(said.code, said.text, said.retry, said.redirect)
