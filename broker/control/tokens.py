"""Bearer tokens: `tw_<id>_<secret>`. Only the SHA-256 of the secret is ever stored."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from broker.control.viewing import Viewer
from broker.state import keys
from broker.state.store import Store
from federation.environment import Clock, Ids
from federation.ids import parse_tenant
from federation.kv import Absent, AmbiguousCommit, ModRevisionIs, Put, Txn
from federation.wire import records as pb

SCHEMA = 1
SECRET_BYTES = 32
OPERATOR_TOKEN_ID = "operator"
ROLES = ("user", "operator")

_TOKEN = re.compile(r"tw_([a-z0-9]{1,32})_([A-Za-z0-9_-]{43})", re.ASCII)
_CACHE_MAX = 10_000


class TokenError(ValueError):
    """A token that cannot be made as asked; the text names the remedy."""


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """What may be shown of a token: never its secret."""

    id: str
    subject: str
    tenants: tuple[str, ...]
    role: str
    created_ms: int
    expires_ms: int
    revoked: bool


def split_token(text: str) -> tuple[str, str] | None:
    """(id, secret) of a well-formed token; None for anything else."""
    match = _TOKEN.fullmatch(text)
    return (match[1], match[2]) if match else None


def secret_sha256(secret: str) -> bytes:
    """What is stored of a secret: 32 bytes."""
    return hashlib.sha256(secret.encode("ascii")).digest()


def decode_token(value: bytes) -> pb.TokenRecord:
    """A stored token. Raises DecodeError."""
    return pb.TokenRecord.FromString(value)


def info(record: pb.TokenRecord) -> TokenInfo:
    """The showable part of a stored token."""
    return TokenInfo(
        id=record.id,
        subject=record.subject,
        tenants=tuple(record.tenants),
        role=record.role,
        created_ms=record.created_ms,
        expires_ms=record.expires_ms,
        revoked=record.revoked,
    )


class TokenBook:
    """Checks tokens against their records, as this replica sees them."""

    def __init__(self, lookup: Callable[[str], bytes | None]) -> None:
        """`lookup` gives the bytes under a key, None when absent (`Projection.value`)."""
        self._lookup = lookup
        self._seen: dict[str, tuple[bytes, pb.TokenRecord, Viewer]] = {}

    def known(self, text: str) -> bool:
        """Whether the token names a record this replica has (whatever its secret)."""
        parts = split_token(text)
        return parts is not None and self._lookup(keys.token(parts[0])) is not None

    def verify(self, text: str, now_ms: int) -> Viewer | str:
        """Who holds this token, or in one line why it opens nothing.

        The line never tells whether an id exists: a wrong secret and an unknown id read alike.
        """
        parts = split_token(text)
        if parts is None:
            return "the token is malformed: it reads tw_<id>_<secret>"
        value = self._lookup(keys.token(parts[0]))
        stored = self._record(parts[0], value) if value is not None else None
        expected = stored[0].secret_sha256 if stored else bytes(32)
        fits = hmac.compare_digest(expected, secret_sha256(parts[1]))
        if stored is None or not fits:
            return "the token is not known here"
        record, viewer = stored
        if record.revoked:
            return "the token was revoked"
        if record.expires_ms and now_ms >= record.expires_ms:
            return "the token has expired"
        return viewer

    def _record(self, token_id: str, value: bytes) -> tuple[pb.TokenRecord, Viewer] | None:
        seen = self._seen.get(token_id)
        if seen is not None and seen[0] == value:
            return seen[1], seen[2]
        try:
            record = decode_token(value)
        except DecodeError:
            return None
        operator = record.role == "operator"
        viewer = Viewer(
            subject=record.subject,
            tenants=() if operator else tuple(record.tenants),
            operator=operator,
            token_id=record.id,
        )
        if len(self._seen) >= _CACHE_MAX:
            self._seen.clear()
        self._seen[token_id] = (value, record, viewer)
        return record, viewer


@dataclass(frozen=True, slots=True)
class Grant:
    """What a new token is for. `ttl_s` 0 = it never expires."""

    subject: str
    tenants: tuple[str, ...] = ()
    role: str = "user"
    ttl_s: int = 0

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise TokenError(f"role {self.role!r} is not one of {', '.join(ROLES)}")
        if not self.subject or len(self.subject) > 128 or not self.subject.isprintable():
            raise TokenError("a subject is 1 to 128 printable characters")
        if self.role == "user" and not self.tenants:
            raise TokenError("a user's token names the tenants it is for")
        for tenant in self.tenants:
            parse_tenant(tenant)


async def create_token(store: Store, ids: Ids, clock: Clock, grant: Grant) -> tuple[str, str]:
    """Make a token; returns (its text, shown once, and its id). Raises StoreError."""
    token_id = base64.b32encode(ids.token_bytes(10)).decode().lower()
    text = await _create(store, ids, clock, token_id, grant)
    if text is None:
        raise TokenError("two tokens drew the same id; try again")
    return text, token_id


async def ensure_operator_token(store: Store, ids: Ids, clock: Clock) -> str | None:
    """The first operator's token on the very first start of a federation, else None.

    Of brokers that start together exactly one gets it. Raises StoreError.
    """
    return await _create(
        store, ids, clock, OPERATOR_TOKEN_ID, Grant("operator", role="operator")
    )


async def _create(
    store: Store, ids: Ids, clock: Clock, token_id: str, grant: Grant
) -> str | None:
    secret = base64.urlsafe_b64encode(ids.token_bytes(SECRET_BYTES)).decode().rstrip("=")
    now_ms = clock.now_ms()
    record = pb.TokenRecord(
        schema=SCHEMA,
        id=token_id,
        secret_sha256=secret_sha256(secret),
        subject=grant.subject,
        tenants=list(grant.tenants),
        role=grant.role,
        created_ms=now_ms,
        expires_ms=now_ms + grant.ttl_s * 1000 if grant.ttl_s else 0,
    )
    key, value = keys.token(token_id), record.SerializeToString()
    try:
        created = (await store.txn(Txn((Absent(key),), (Put(key, value),)))).succeeded
    except AmbiguousCommit:
        found = await store.get(key)
        if found is None:
            raise
        created = found.value == value
    return f"tw_{token_id}_{secret}" if created else None


async def revoke_token(store: Store, token_id: str) -> bool:
    """Make a token open nothing from now on; False when there is none. Raises StoreError."""
    key = keys.token(token_id)
    while True:
        found = await store.get(key)
        if found is None:
            return False
        record = decode_token(found.value)
        if record.revoked:
            return True
        record.revoked = True
        put = Put(key, record.SerializeToString())
        result = await store.txn(Txn((ModRevisionIs(key, found.mod_revision),), (put,)))
        if result.succeeded:
            return True
