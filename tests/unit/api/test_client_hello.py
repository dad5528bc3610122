"""The name a client asks for is read from real hellos, however they arrive, and nothing else."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api.client_hello import (
    HELLO_BYTES_MAX,
    Incomplete,
    NoHello,
    ServerName,
    server_name,
)


def hello(name: str | None, lowest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2) -> bytes:
    """What OpenSSL says first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.minimum_version = lowest
    context.set_alpn_protocols(["h2", "http/1.1"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


HELLO = hello("session.broker.example")


def in_records(data: bytes, size: int) -> bytes:
    """The same handshake message in records of at most `size` bytes."""
    body = data[5:]
    return b"".join(
        data[:3] + len(part).to_bytes(2) + part
        for part in (body[at : at + size] for at in range(0, len(body), size))
    )


@pytest.mark.parametrize("lowest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", ["broker.example", "SESSION.Broker.Example", "xn--bcher-kva.org"])
def test_the_name_of_a_whole_hello(name: str, lowest: ssl.TLSVersion) -> None:
    assert server_name(hello(name, lowest)) == ServerName(name.lower())


def test_a_hello_without_a_name_asks_for_none() -> None:
    assert server_name(hello(None)) == ServerName("")
    assert server_name(hello("127.0.0.1")) == ServerName(""), "addresses are no server names"


def test_what_follows_the_hello_does_not_matter() -> None:
    assert server_name(HELLO + b"\x17\x03\x03\x00\x01x") == ServerName("session.broker.example")


def test_every_beginning_of_a_hello_waits_for_the_rest() -> None:
    for end in range(len(HELLO)):
        assert server_name(HELLO[:end]) == Incomplete(), end


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 300])
def test_a_hello_in_many_records(size: int) -> None:
    parts = in_records(HELLO, size)
    assert server_name(parts) == ServerName("session.broker.example")
    for end in range(len(parts)):
        assert server_name(parts[:end]) == Incomplete(), end


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not a TLS handshake"),
        (b"PRI * HTTP/2.0\r\n", "not a TLS handshake"),
        (b"\x16\x02\x00\x00\x05hello", "not a TLS version"),
        (b"\x16\x03\x01\x00\x00", "wrong length"),
        (b"\x16\x03\x01\xff\xff", "wrong length"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "no ClientHello"),
        (b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", "too long"),
        (b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03", "past the end"),
        (HELLO.replace(b"session.broker", b"session\x00broker"), "no host name"),
    ],
)
def test_what_is_no_hello_is_named(data: bytes, why: str) -> None:
    verdict = server_name(data)
    assert isinstance(verdict, NoHello) and why in verdict.why


def test_a_hello_never_grows_without_end() -> None:
    endless = in_records(b"\x16\x03\x01\x00\x00\x01\x00\x3f\xff" + b"x" * HELLO_BYTES_MAX, 1)
    assert isinstance(server_name(endless[:HELLO_BYTES_MAX]), NoHello)


@given(st.binary(max_size=600))
def test_garbage_never_raises(data: bytes) -> None:
    server_name(data)
    server_name(b"\x16\x03\x01" + data)


@given(st.integers(0, len(HELLO) - 1), st.integers(0, 255), st.integers(0, len(HELLO)))
def test_a_broken_hello_never_raises(at: int, value: int, end: int) -> None:
    broken = bytearray(HELLO)
    broken[at] = value
    server_name(bytes(broken[:end]))
