"""Tickets and the MAC of admission: what is signed is what is read, and nothing else is."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.refusals import Refusal, RefusalCode
from federation.tickets import (
    TICKET_BYTES_MAX,
    Ticket,
    TicketSigner,
    admission_holds,
    admission_mac,
    open_ticket,
    parse_ticket_header,
    read_ticket,
    sign_ticket,
    spec_digest,
    ticket_header,
)

NOW_MS = 1_800_000_000_000
SIGNER = TicketSigner.from_seed(b"s" * 32)
NEXT = TicketSigner.from_seed(b"n" * 32)
KEYS = {s.kid: s.public_key for s in (SIGNER, NEXT)}
MAC_KEY = b"m" * 32


def ticket(**changes) -> Ticket:
    base = Ticket(
        uid="j0000000000000001-1",
        job="j0000000000000001",
        epoch=7,
        cluster="eu",
        tenant="physics",
        subject="ada@example.org",
        spec_sha256=spec_digest(b"{}"),
        not_after_ms=NOW_MS + 600_000,
    )
    return dataclasses.replace(base, **changes)


def opened(raw: bytes, **changes) -> Ticket | Refusal:
    facts = {"now_ms": NOW_MS, "cluster": "eu", "epoch_min": 7} | changes
    return open_ticket(raw, KEYS, **facts)


def refused(answer: Ticket | Refusal) -> RefusalCode:
    assert isinstance(answer, Refusal), answer
    assert "\n" not in answer.text
    return answer.code


def test_both_valid_keys_open_what_they_signed():
    for signer in (SIGNER, NEXT):
        assert opened(sign_ticket(ticket(), signer)) == ticket()


def test_the_same_ticket_has_one_byte_form():
    assert sign_ticket(ticket(), SIGNER) == sign_ticket(ticket(), SIGNER)


def test_a_key_this_side_does_not_hold_opens_nothing():
    raw = sign_ticket(ticket(), TicketSigner.from_seed(b"x" * 32))
    assert refused(opened(raw)) is RefusalCode.TICKET_INVALID


def test_another_cluster_an_older_epoch_and_age_are_told_apart():
    raw = sign_ticket(ticket(), SIGNER)
    assert refused(opened(raw, cluster="us")) is RefusalCode.WRONG_CLUSTER
    assert refused(opened(raw, epoch_min=8)) is RefusalCode.STALE_EPOCH
    assert refused(opened(raw, now_ms=NOW_MS + 600_001)) is RefusalCode.TICKET_EXPIRED
    assert opened(raw, now_ms=NOW_MS + 600_000) == ticket()
    assert opened(raw, epoch_min=3) == ticket()


def test_age_does_not_matter_where_only_form_and_signature_are_asked():
    raw = sign_ticket(ticket(not_after_ms=1), SIGNER)
    assert read_ticket(raw, KEYS) == ticket(not_after_ms=1)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_changed_byte_is_taken(data):
    raw = bytearray(sign_ticket(ticket(), SIGNER))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    assert refused(opened(bytes(raw))) is RefusalCode.TICKET_INVALID


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=TICKET_BYTES_MAX + 10))
def test_nonsense_is_refused_not_raised(raw):
    assert refused(opened(raw)) is RefusalCode.TICKET_INVALID
    good = sign_ticket(ticket(), SIGNER)
    assert refused(opened(good[:40] + raw)) is RefusalCode.TICKET_INVALID


@pytest.mark.parametrize(
    "body",
    [b"[]", b"null", b'{"uid":"a"}', b"[" * 1500, b'{"uid": 1}', b"\xff"],
)
def test_a_signed_body_that_is_no_ticket_is_refused(body):
    magic = b"tradewind-ticket-1\n"
    signed = magic + SIGNER.kid.encode() + body
    assert refused(opened(signed + SIGNER.sign(signed))) is RefusalCode.TICKET_INVALID


def test_a_signed_body_not_in_canonical_form_is_refused():
    body = ticket().canonical.replace(b'","', b'" ,"', 1)
    signed = b"tradewind-ticket-1\n" + SIGNER.kid.encode() + body
    assert refused(opened(signed + SIGNER.sign(signed))) is RefusalCode.TICKET_INVALID


@pytest.mark.parametrize(
    "changes",
    [
        {"uid": ""},
        {"epoch": -1},
        {"epoch": True},
        {"spec_sha256": "A" * 64},
        {"subject": "x" * 257},
        {"not_after_ms": 2**63},
    ],
)
def test_a_ticket_that_could_not_be_read_back_is_not_signed(changes):
    with pytest.raises(ValueError, match="ticket for"):
        sign_ticket(ticket(**changes), SIGNER)


def test_header_carries_a_ticket_and_nothing_else_passes_for_one():
    raw = sign_ticket(ticket(), SIGNER)
    assert parse_ticket_header(ticket_header(raw)) == raw
    for value in ("", "Bearer tw_a_b", "Ticket ***", "Ticket é", "Ticket " + "A" * 5000):
        assert parse_ticket_header(value) is None


def test_mac_binds_every_field_and_their_borders():
    fields = ("j1", "physics", spec_digest(b"{}"), "ada")
    mac = admission_mac(MAC_KEY, *fields)
    assert admission_holds(mac, MAC_KEY, *fields)
    for i in range(4):
        changed = [f + "x" if n == i else f for n, f in enumerate(fields)]
        assert not admission_holds(mac, MAC_KEY, *changed)
    assert not admission_holds(mac, b"k" * 32, *fields)
    moved = ("j1p", "hysics", *fields[2:])
    assert not admission_holds(mac, MAC_KEY, *moved)
    assert not admission_holds(b"", MAC_KEY, *fields)
    with pytest.raises(ValueError, match="32 bytes"):
        admission_mac(b"short", *fields)
