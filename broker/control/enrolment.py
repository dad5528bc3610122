"""Enrolment: how a site gets, keeps and loses its identity.

An operator invites a cluster; the invitation is a token that works once, for one key, until it
expires, and only its hash is stored. The site makes its own key and asks with the token for a
certificate, later with the certificate it has for the next. Nobody but the holder of a key gets
a certificate for it. Every refusal is a value with one line that says what to do.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from broker.control.enrolment_rules import (
    EnrolmentCode,
    EnrolmentRefused,
    InvitationError,
    gone,
    invited,
    presented,
    unknown_cluster,
    unusable,
    void,
    void_earlier,
)
from broker.state import keys
from broker.state.cluster_records import (
    SCHEMA,
    TRIES_MAX,
    change_cluster,
    known_cluster,
    put_cluster,
    read_cluster,
    unchanged,
)
from broker.state.codec import RecordUnreadable
from broker.state.keyring import Keyring
from broker.state.store import Store
from federation.certificates import (
    DAY_MS,
    CertificateError,
    CertificateFacts,
    csr_key_sha256,
    facts_of,
    issued_by,
    proof_holds,
)
from federation.environment import Clock, Ids
from federation.handshake.broker_half import judge
from federation.handshake.frames import SessionCode
from federation.handshake.values import ago
from federation.ids import parse_cluster, parse_region
from federation.issuing import AGENT_LIFE_MS, issue_agent
from federation.kv import Absent, ModRevisionIs, Put, StoreUnavailable, Txn
from federation.wire import records as pb

TOKEN_PREFIX = "tw-join_"
INVITATION_TTL_S_MAX = 30 * 86_400
RENEWABLE_AFTER_EXPIRY_MS = 30 * DAY_MS
TOKEN_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Reach:
    """Where agents find the federation: session addresses of all brokers, and the API's URL."""

    session_addresses: tuple[str, ...]
    api_url: str


@dataclass(frozen=True, slots=True)
class EnrolmentAnswer:
    """What a site needs to open sessions; certificates are PEM, `ca_pem` all that are good now."""

    certificate_pem: bytes
    ca_pem: bytes
    cluster: str
    region: str
    session_addresses: tuple[str, ...]
    api_url: str


@dataclass(frozen=True, slots=True)
class SessionVerdict:
    """Whether a certificate opens a session now; `code` is a SessionCode, or `ok`."""

    ok: bool
    code: str
    reason: str


class Enrolment:
    """Invitations, certificates and their revocation, on any broker replica."""

    def __init__(
        self,
        store: Store,
        keyring: Keyring,
        clock: Clock,
        ids: Ids,
        reach: Callable[[], Reach],
        *,
        certificate_life_ms: int = AGENT_LIFE_MS,
    ) -> None:
        self._store = store
        self._keyring = keyring
        self._clock = clock
        self._ids = ids
        self._reach = reach
        self._life_ms = certificate_life_ms

    async def invite(self, cluster: str, region: str, ttl_s: int, created_by: str) -> str:
        """Make an invitation for a cluster; returns the token, which is stored nowhere.

        A cluster that was removed may be invited again. Raises InvalidName, InvitationError
        when the cluster is of another region or `ttl_s` out of range, and what the store
        raises.
        """
        parse_cluster(cluster)
        parse_region(region)
        if not 0 < ttl_s <= INVITATION_TTL_S_MAX:
            raise InvitationError(f"an invitation is good for 1 s to {INVITATION_TTL_S_MAX} s")
        secret = base64.urlsafe_b64encode(self._ids.token_bytes(32)).decode("ascii")
        token = TOKEN_PREFIX + secret.rstrip("=")
        now_ms = self._clock.now_ms()
        invitation = pb.EnrolmentRecord(
            schema=SCHEMA,
            cluster=cluster,
            region=region,
            expires_ms=now_ms + ttl_s * 1000,
            created_by=created_by,
        )
        key = keys.enrolment(_hash(token))
        for _ in range(TRIES_MAX):
            stored = await read_cluster(self._store, cluster)
            record = invited(stored, cluster, region, now_ms)
            txn = Txn(
                (unchanged(cluster, stored), Absent(key)),
                (put_cluster(record), Put(key, invitation.SerializeToString())),
            )
            if (await self._store.txn(txn)).succeeded:
                return token
        raise StoreUnavailable(f"the record of cluster {cluster} changes too fast")

    async def enrol(self, token: str, csr_pem: bytes) -> EnrolmentAnswer | EnrolmentRefused:
        """Exchange an invitation for a certificate of the request's key.

        The key that used a token may ask again until it expires, so a lost answer costs
        nothing. A new key makes every earlier certificate of the cluster void. Raises what the
        store does.
        """
        try:
            key_sha256 = bytes.fromhex(csr_key_sha256(csr_pem))
        except CertificateError as problem:
            return EnrolmentRefused(EnrolmentCode.REQUEST_INVALID, str(problem))
        for _ in range(TRIES_MAX):
            answer = await self._try_enrol(token, key_sha256, csr_pem)
            if answer is not None:
                return answer
        raise StoreUnavailable("the invitation is being used elsewhere at this moment")

    async def renew(
        self, certificate_pem: bytes, csr_pem: bytes, proof: bytes
    ) -> EnrolmentAnswer | EnrolmentRefused:
        """Exchange a certificate, also one up to 30 days expired, for the next.

        `proof` is `certificates.prove(old key, csr_pem)`; it may be empty when the request
        itself is signed by the old key. Raises what the store does.
        """
        now_ms = self._clock.now_ms()
        try:
            facts = facts_of(certificate_pem)
            asked_sha256 = csr_key_sha256(csr_pem)
            foreign = not issued_by(certificate_pem, self._keyring.ca_bundle)
        except CertificateError as problem:
            return EnrolmentRefused(EnrolmentCode.REQUEST_INVALID, str(problem))
        if foreign or not facts.cluster:
            return EnrolmentRefused(
                EnrolmentCode.CERTIFICATE_FOREIGN,
                "this certificate is not of an agent of this federation",
            )
        if asked_sha256 != facts.public_key_sha256 and not proof_holds(
            certificate_pem, csr_pem, proof
        ):
            return EnrolmentRefused(
                EnrolmentCode.PROOF_INVALID,
                "the request does not prove possession of the certificate's key",
            )
        if now_ms > facts.not_after_ms + RENEWABLE_AFTER_EXPIRY_MS:
            return EnrolmentRefused(
                EnrolmentCode.CERTIFICATE_TOO_OLD,
                f"the certificate expired {ago(now_ms - facts.not_after_ms)} ago, too long to "
                "renew it; join again with a new invitation",
            )
        return await self._renew(facts, csr_pem, now_ms)

    async def session_check(self, certificate_pem: bytes) -> SessionVerdict:
        """Why this certificate opens no session, for an agent TLS threw out without a word.

        Raises what the store does.
        """
        try:
            facts = facts_of(certificate_pem)
            foreign = not issued_by(certificate_pem, self._keyring.ca_bundle)
        except CertificateError as problem:
            return SessionVerdict(
                ok=False, code=SessionCode.CERTIFICATE_MISSING, reason=str(problem)
            )
        if foreign:
            return SessionVerdict(
                ok=False,
                code=SessionCode.CERTIFICATE_FOREIGN,
                reason="this certificate is not signed by the CA of this federation; join it",
            )
        stored = await read_cluster(self._store, facts.cluster) if facts.cluster else None
        known = known_cluster(stored.record, 0) if stored else None
        verdict = judge(presented(facts), known, self._clock.now_ms())
        if verdict is None:
            good = f"this certificate of {facts.cluster} is good"
            return SessionVerdict(ok=True, code="ok", reason=good)
        return SessionVerdict(ok=False, code=verdict[0], reason=verdict[1])

    async def revoke(self, cluster: str) -> bool:
        """Make every certificate of a cluster void: it has to join anew, by invitation.

        Returns whether there is such a cluster. Raises what the store does.
        """
        now_ms = self._clock.now_ms()

        def revoke_all(record: pb.ClusterRecord) -> None:
            serial = record.certificate_serial
            if serial and serial not in record.revoked_serials:
                record.revoked_serials.append(serial)
            void_earlier(record, now_ms)

        return await change_cluster(self._store, cluster, revoke_all) is not None

    # Inside ---------------------------------------------------------------------------------

    async def _try_enrol(
        self, token: str, key_sha256: bytes, csr_pem: bytes
    ) -> EnrolmentAnswer | EnrolmentRefused | None:
        """One try; None when another write came between."""
        now_ms = self._clock.now_ms()
        key = keys.enrolment(_hash(token[:TOKEN_CHARS_MAX]))
        kv = await self._store.get(key)
        if kv is None:
            return EnrolmentRefused(
                EnrolmentCode.TOKEN_UNKNOWN,
                "this token is not known here; ask the operator for a new invitation",
            )
        invitation = _invitation(key, kv.value)
        stored = await read_cluster(self._store, invitation.cluster)
        refused = unusable(invitation, key_sha256, now_ms) or gone(invitation, stored)
        if refused or stored is None:
            return refused
        record = stored.record
        if not invitation.used_by_key:
            void_earlier(record, now_ms)
            invitation.used_by_key = key_sha256
            invitation.used_ms = record.joined_ms
        certificate_pem = self._issue(record, csr_pem, now_ms)
        if record.state == "invited":
            record.state = "joined"
        txn = Txn(
            (ModRevisionIs(key, kv.mod_revision), unchanged(record.cluster, stored)),
            (Put(key, invitation.SerializeToString()), put_cluster(record)),
        )
        if not (await self._store.txn(txn)).succeeded:
            return None
        return self._answer(certificate_pem, record)

    async def _renew(
        self, facts: CertificateFacts, csr_pem: bytes, now_ms: int
    ) -> EnrolmentAnswer | EnrolmentRefused:
        for _ in range(TRIES_MAX):
            stored = await read_cluster(self._store, facts.cluster)
            refused = void(facts, stored)
            if refused or stored is None:
                return refused or unknown_cluster(facts.cluster)
            certificate_pem = self._issue(stored.record, csr_pem, now_ms)
            txn = Txn((unchanged(facts.cluster, stored),), (put_cluster(stored.record),))
            if (await self._store.txn(txn)).succeeded:
                return self._answer(certificate_pem, stored.record)
        raise StoreUnavailable(f"the record of cluster {facts.cluster} changes too fast")

    def _issue(self, record: pb.ClusterRecord, csr_pem: bytes, now_ms: int) -> bytes:
        """Issue, and note serial and expiry in the record."""
        certificate_pem = issue_agent(
            self._keyring.ca,
            csr_pem,
            federation=self._keyring.federation,
            cluster=record.cluster,
            now_ms=max(now_ms, record.joined_ms),
            life_ms=self._life_ms,
        )
        facts = facts_of(certificate_pem)
        record.certificate_serial = facts.serial
        record.certificate_expires_ms = facts.not_after_ms
        return certificate_pem

    def _answer(self, certificate_pem: bytes, record: pb.ClusterRecord) -> EnrolmentAnswer:
        reach = self._reach()
        return EnrolmentAnswer(
            certificate_pem=certificate_pem,
            ca_pem=self._keyring.ca_bundle,
            cluster=record.cluster,
            region=record.region,
            session_addresses=reach.session_addresses,
            api_url=reach.api_url,
        )


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _invitation(key: str, value: bytes) -> pb.EnrolmentRecord:
    try:
        return pb.EnrolmentRecord.FromString(value)
    except DecodeError as problem:
        raise RecordUnreadable(f"{key} holds no invitation") from problem
