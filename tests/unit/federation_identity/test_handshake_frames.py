"""Every field of the handshake's frames survives the wire, and none is forgotten."""

import dataclasses

from federation.handshake.frames import Goodbye, Hello, TicketKey, Welcome
from federation.wire import session
from federation.wire.handshake_frames import (
    goodbye_from_wire,
    goodbye_to_wire,
    hello_from_wire,
    hello_to_wire,
    welcome_from_wire,
    welcome_to_wire,
)

VALUES = {"int": 7, "str": "text", "bytes": b"bytes", "bool": True, "tuple[str, ...]": ("a", "b")}


def filled(kind):
    """An instance with no field at its default."""
    keys = (TicketKey("kid", b"k" * 32),)
    return kind(
        **{
            f.name: keys if f.name == "ticket_keys" else VALUES[f.type]
            for f in dataclasses.fields(kind)
        }
    )


def test_frames_survive_the_wire():
    for kind, name, to_wire, from_wire in (
        (Hello, "hello", hello_to_wire, hello_from_wire),
        (Welcome, "welcome", welcome_to_wire, welcome_from_wire),
        (Goodbye, "goodbye", goodbye_to_wire, goodbye_from_wire),
    ):
        frame = filled(kind)
        message = to_wire(frame)
        again = type(message).FromString(message.SerializeToString())
        assert from_wire(getattr(again, name)) == frame


def test_no_field_of_the_contract_is_left_out():
    for kind, message in (
        (Hello, session.Hello),
        (Welcome, session.Welcome),
        (Goodbye, session.Goodbye),
    ):
        assert {f.name for f in dataclasses.fields(kind)} == set(message.DESCRIPTOR.fields_by_name)
