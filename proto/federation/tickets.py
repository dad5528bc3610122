"""Tickets: the broker's signed permission for one attempt, and the MAC of admission.

An agent runs nothing without a ticket. It names the attempt, the epoch of the leader that
decided it, the cluster it is for, who submitted, and the digest of the very spec to run, so
that a ticket seen by others starts nothing elsewhere, later, or different. The MAC does the
same inside etcd: what the API admitted is what the planner plans, or the planner skips it and
alarms.

A ticket travels as `magic | kid | body | signature`: kid and signature have one length each,
the body is canonical JSON, and the signature covers all before it, so no two readings of the
same bytes exist. Pure: `now` is an argument, and only the holder of a `TicketSigner` can make
one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from federation.refusals import Refusal, RefusalCode

TICKET_LIFE_MS = 600_000
TICKET_BYTES_MAX = 2_048
PUBLIC_KEY_BYTES = 32

_MAGIC = b"tradewind-ticket-1\n"
_SIGNATURE_BYTES = 64
_MAC_DOMAIN = b"tradewind-admission-1"
_SCHEME = "Ticket "
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission to run attempt `uid` of `job` in `cluster` until `not_after_ms` (broker time).

    `epoch` is the leader's fencing number, `subject` who submitted, `spec_sha256` the digest of
    the canonical spec as 64 lower-case hex digits (see `spec_digest`).
    """

    uid: str
    job: str
    epoch: int
    cluster: str
    tenant: str
    subject: str
    spec_sha256: str
    not_after_ms: int

    @property
    def canonical(self) -> bytes:
        """The one byte form of this ticket: sorted, compact, ASCII JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")


class TicketSigner:
    """An Ed25519 private key and the `kid` its public half is known by."""

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        self._key = private_key
        self.public_key = private_key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.kid = key_id(self.public_key)

    @classmethod
    def from_seed(cls, seed: bytes) -> TicketSigner:
        """From 32 secret bytes. Raises ValueError for any other length."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    def sign(self, message: bytes) -> bytes:
        """64 bytes; the same message gives the same signature."""
        return self._key.sign(message)


def key_id(public_key: bytes) -> str:
    """The `kid` of a public key: 16 hex digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:16]


def spec_digest(spec: bytes) -> str:
    """Digest of canonical spec bytes as tickets and MACs carry it: 64 hex digits."""
    return hashlib.sha256(spec).hexdigest()


def sign_ticket(ticket: Ticket, signer: TicketSigner) -> bytes:
    """Seal a ticket. Raises ValueError for one that `read_ticket` would not take back."""
    if problem := _problem(ticket):
        raise ValueError(f"ticket for {ticket.uid!r}: {problem}")
    signed = _MAGIC + signer.kid.encode("ascii") + ticket.canonical
    raw = signed + signer.sign(signed)
    if len(raw) > TICKET_BYTES_MAX:
        raise ValueError(f"ticket for {ticket.uid!r}: {len(raw)} bytes")
    return raw


def read_ticket(raw: bytes, keys: Mapping[str, bytes]) -> Ticket | Refusal:
    """Check form and signature only; `keys` maps kid to 32 public bytes.

    Enough where age does not matter: results of a job that ran for days come back under the
    ticket it was started with. Whoever uses this checks the attempt against its own books.
    """
    head = len(_MAGIC) + 16
    if not head + _SIGNATURE_BYTES < len(raw) <= TICKET_BYTES_MAX:
        return _invalid(f"{len(raw)} bytes are no ticket")
    if not raw.startswith(_MAGIC):
        return _invalid("not a ticket, or of a version this side does not know")
    kid = raw[len(_MAGIC) : head].decode("ascii", "replace")
    if not _KID.fullmatch(kid):
        return _invalid("malformed key id")
    if kid not in keys:
        return _invalid(f"signed by key {kid}, which this side does not hold")
    signed, signature = raw[:-_SIGNATURE_BYTES], raw[-_SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(keys[kid]).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return _invalid(f"the signature of key {kid} does not fit")
    return _decode(signed[head:])


def accepted_subject(raw: bytes) -> str:
    """Who submitted, of a ticket whose signature was checked when it was accepted; "" = none in
    it. For people to look at: nothing is decided by it.
    """
    found = _decode(raw[len(_MAGIC) + 16 : -_SIGNATURE_BYTES])
    return found.subject if isinstance(found, Ticket) else ""


def open_ticket(
    raw: bytes,
    keys: Mapping[str, bytes],
    *,
    now_ms: int,
    cluster: str,
    epoch_min: int,
) -> Ticket | Refusal:
    """Check everything an agent must: signature, cluster, epoch, age.

    `now_ms` is broker time, `epoch_min` the highest epoch this agent ever saw.
    """
    ticket = read_ticket(raw, keys)
    if isinstance(ticket, Refusal):
        return ticket
    if ticket.cluster != cluster:
        return Refusal(RefusalCode.WRONG_CLUSTER, ticket.uid, f"cluster {ticket.cluster}", cluster)
    if ticket.epoch < epoch_min:
        return Refusal(RefusalCode.STALE_EPOCH, ticket.uid, f"epoch {epoch_min}", str(ticket.epoch))
    if now_ms > ticket.not_after_ms:
        late_s = -(-(now_ms - ticket.not_after_ms) // 1000)
        return Refusal(
            RefusalCode.TICKET_EXPIRED,
            ticket.uid,
            available=f"expired {late_s} s ago",
            advice="the broker signs a new one",
        )
    return ticket


def ticket_header(raw: bytes) -> str:
    """Value of the `Authorization` header under which an agent fetches and stores blobs."""
    return _SCHEME + base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def parse_ticket_header(value: str) -> bytes | None:
    """The sealed ticket in an `Authorization` header; None when there is none in it."""
    if not value.startswith(_SCHEME) or len(value) > 2 * TICKET_BYTES_MAX:
        return None
    text = value[len(_SCHEME) :].strip()
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None


def admission_mac(key: bytes, job: str, tenant: str, spec_sha256: str, subject: str) -> bytes:
    """HMAC-SHA256 over what the API admitted, 32 bytes.

    Every field is preceded by its length, so moving a character from one to the next makes
    another MAC. Raises ValueError for a key under 32 bytes.
    """
    if len(key) < 32:
        raise ValueError("the MAC key has fewer than 32 bytes")
    parts = [part.encode() for part in (job, tenant, spec_sha256, subject)]
    fields = [len(part).to_bytes(4, "big") + part for part in parts]
    return hmac.digest(key, b"".join((_MAC_DOMAIN, *fields)), "sha256")


def admission_holds(
    mac: bytes, key: bytes, job: str, tenant: str, spec_sha256: str, subject: str
) -> bool:
    """Whether `mac` is the one made at admission; compares in constant time."""
    return hmac.compare_digest(mac, admission_mac(key, job, tenant, spec_sha256, subject))


def _invalid(why: str) -> Refusal:
    return Refusal(RefusalCode.TICKET_INVALID, "ticket", available=why)


def _decode(body: bytes) -> Ticket | Refusal:
    try:
        values: Any = json.loads(body)
        ticket = Ticket(**values)
    except (ValueError, TypeError, RecursionError):
        return _invalid("the body is no ticket")
    problem = _problem(ticket)
    if problem is None and ticket.canonical != body:
        problem = "the body is not in canonical form"
    return ticket if problem is None else _invalid(problem)


def _problem(ticket: Ticket) -> str | None:
    """What is wrong with the values of a ticket; None when nothing is."""
    for name in ("uid", "job", "cluster", "tenant", "subject", "spec_sha256"):
        value = getattr(ticket, name)
        if not isinstance(value, str) or not value or len(value) > 256:
            return f"{name} must be text of 1 to 256 characters"
    for name in ("epoch", "not_after_ms"):
        value = getattr(ticket, name)
        if type(value) is not int or not 0 <= value < 2**63:
            return f"{name} must be a whole number, zero or more"
    if not _SHA256.fullmatch(ticket.spec_sha256):
        return "spec_sha256 must be 64 hex digits"
    return None
