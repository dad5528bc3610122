"""The server name in a TLS ClientHello, read without ending TLS (RFC 8446, 4.1.2; RFC 6066, 3).

Pure: bytes as they have come so far in, a verdict out. Nothing is checked but what must be known
to find the name; what is behind the front does the rest, and refuses what makes no sense.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HELLO_BYTES_MAX = 16_384
"""A hello with post-quantum key shares and a certificate list is far below 4 KiB."""

_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0
_HEADER_BYTES, _RANDOM_BYTES = 5, 32
_NAME = re.compile(rb"[A-Za-z0-9]([A-Za-z0-9_.-]{0,253}[A-Za-z0-9])?\.?")


@dataclass(frozen=True, slots=True)
class ServerName:
    """The hello is whole: the name it asks for, lower case; empty where it names none."""

    name: str


@dataclass(frozen=True, slots=True)
class Incomplete:
    """More bytes are needed."""


@dataclass(frozen=True, slots=True)
class NoHello:
    """This does not begin as TLS does; `why` in one line."""

    why: str


Verdict = ServerName | Incomplete | NoHello


class _Broken(Exception):
    """A length points past its end, or a value is not what the format has there."""


def server_name(data: bytes) -> Verdict:
    """What the first bytes of a connection ask for."""
    try:
        hello = _handshake(data)
        if hello is None:
            return Incomplete() if len(data) < HELLO_BYTES_MAX else NoHello("a hello without end")
        return ServerName(_name_in(_Reader(hello)))
    except _Broken as broken:
        return NoHello(str(broken))


def _handshake(data: bytes) -> bytes | None:
    """The body of the ClientHello, put together from its records; None while it is not whole."""
    message, at = b"", 0
    while True:
        if at < len(data) and data[at] != _HANDSHAKE:
            raise _Broken("not a TLS handshake")
        if at + 1 < len(data) and data[at + 1] != 3:
            raise _Broken("not a TLS version")
        if at + _HEADER_BYTES > len(data):
            return None
        size = int.from_bytes(data[at + 3 : at + _HEADER_BYTES])
        if not 0 < size <= HELLO_BYTES_MAX:
            raise _Broken("a record of a wrong length")
        at += _HEADER_BYTES
        message += data[at : at + size]
        at += size
        if message and message[0] != _CLIENT_HELLO:
            raise _Broken("no ClientHello")
        if len(message) >= 4:
            length = int.from_bytes(message[1:4])
            if length > HELLO_BYTES_MAX:
                raise _Broken("a hello too long")
            if len(message) >= 4 + length:
                return message[4 : 4 + length]


class _Reader:
    """Reads values with their lengths before them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """The next so many bytes."""
        if size > self.left:
            raise _Broken("a length points past the end of the hello")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        """An unsigned integer of so many bytes."""
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> bytes:
        """Bytes with their length before them, as an integer of so many bytes."""
        return self.take(self.number(size))


def _name_in(hello: _Reader) -> str:
    hello.take(2 + _RANDOM_BYTES)
    for size in (1, 2, 1):  # session id, cipher suites, compression methods
        hello.vector(size)
    if not hello.left:
        return ""
    extensions = _Reader(hello.vector(2))
    while extensions.left:
        kind, body = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            return _host_name(_Reader(_Reader(body).vector(2)))
    return ""


def _host_name(names: _Reader) -> str:
    while names.left:
        kind, name = names.number(1), names.vector(2)
        if kind == _HOST_NAME:
            if not _NAME.fullmatch(name):
                raise _Broken("a server name that is no host name")
            return name.decode("ascii").lower().rstrip(".")
    return ""
