"""Who gets a certificate: the rules of enrolment, on records already read. Pure.

A cluster's `joined_ms` is the line between its present identity and all earlier ones: it moves
when another key joins, when everything is revoked, and when a removed cluster is invited again,
and every certificate issued before it is void. Issue times are whole seconds, so it moves to
the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from broker.state.cluster_records import SCHEMA, StoredCluster, known_cluster
from federation.certificates import CertificateFacts
from federation.handshake.broker_half import TLS_VERSION, judge
from federation.handshake.values import Peer, ago
from federation.wire import records as pb


class EnrolmentCode(StrEnum):
    """Every reason for which no certificate is issued."""

    TOKEN_UNKNOWN = "token_unknown"
    TOKEN_EXPIRED = "token_expired"
    TOKEN_USED = "token_used"
    REQUEST_INVALID = "request_invalid"
    CERTIFICATE_INVALID = "certificate_invalid"
    CERTIFICATE_FOREIGN = "certificate_foreign"
    CERTIFICATE_REVOKED = "certificate_revoked"
    CERTIFICATE_TOO_OLD = "certificate_too_old"
    PROOF_INVALID = "proof_invalid"
    CLUSTER_UNKNOWN = "cluster_unknown"
    CLUSTER_REMOVED = "cluster_removed"


@dataclass(frozen=True, slots=True)
class EnrolmentRefused:
    """No certificate; `text` is one line for the person at the site."""

    code: EnrolmentCode
    text: str


class InvitationError(ValueError):
    """An invitation that cannot be made as asked; the text says why."""


def void_earlier(record: pb.ClusterRecord, now_ms: int) -> None:
    """Make every certificate issued to this cluster until now void."""
    record.joined_ms = max((now_ms // 1000 + 1) * 1000, record.joined_ms + 1000)


def invited(
    stored: StoredCluster | None, cluster: str, region: str, now_ms: int
) -> pb.ClusterRecord:
    """The cluster's record once it is invited.

    Raises InvitationError when it already lives in another region.
    """
    if stored is None:
        return pb.ClusterRecord(schema=SCHEMA, cluster=cluster, region=region, state="invited")
    record = stored.record
    if record.state == "removed":
        record.region, record.state = region, "invited"
        void_earlier(record, now_ms)
    elif record.region != region:
        raise InvitationError(
            f"cluster {cluster} is in region {record.region}, not {region}; remove it first to "
            "move it"
        )
    return record


def unusable(
    invitation: pb.EnrolmentRecord, key_sha256: bytes, now_ms: int
) -> EnrolmentRefused | None:
    """Why this key gets nothing for this token."""
    if invitation.used_by_key not in (b"", key_sha256):
        return EnrolmentRefused(
            EnrolmentCode.TOKEN_USED,
            f"this token was used {ago(now_ms - invitation.used_ms)} ago by another key; if that "
            "was not you, tell the operator, and ask for a new invitation",
        )
    if now_ms > invitation.expires_ms:
        return EnrolmentRefused(
            EnrolmentCode.TOKEN_EXPIRED,
            f"this token expired {ago(now_ms - invitation.expires_ms)} ago; ask the operator for "
            "a new invitation",
        )
    return None


def gone(invitation: pb.EnrolmentRecord, stored: StoredCluster | None) -> EnrolmentRefused | None:
    """Why a good token names a cluster that may not join."""
    if stored is None:
        return unknown_cluster(invitation.cluster)
    if invitation.used_by_key and invitation.used_ms < stored.record.joined_ms:
        return EnrolmentRefused(
            EnrolmentCode.CERTIFICATE_REVOKED,
            f"what cluster {invitation.cluster} got for this token was revoked or replaced since; "
            "ask the operator for a new invitation",
        )
    if stored.record.state == "removed" or stored.record.region != invitation.region:
        return EnrolmentRefused(
            EnrolmentCode.CLUSTER_REMOVED,
            f"cluster {invitation.cluster} was removed after this invitation; ask the operator "
            "for a new one",
        )
    return None


def void(facts: CertificateFacts, stored: StoredCluster | None) -> EnrolmentRefused | None:
    """Why a certificate may not even renew; its expiry is no reason."""
    known = known_cluster(stored.record, 0) if stored else None
    verdict = judge(presented(facts), known, max(facts.not_before_ms, facts.not_after_ms))
    if verdict is None:
        return None
    return EnrolmentRefused(EnrolmentCode(verdict[0].value), verdict[1])


def unknown_cluster(cluster: str) -> EnrolmentRefused:
    """There is no such cluster (any more)."""
    return EnrolmentRefused(
        EnrolmentCode.CLUSTER_UNKNOWN,
        f"cluster {cluster} is not of this federation any more; ask for a new invitation",
    )


def presented(facts: CertificateFacts) -> Peer:
    """A certificate shown outside of TLS, as the handshake judges a peer."""
    return Peer(
        tls_version=TLS_VERSION,
        cluster=facts.cluster,
        serial=facts.serial,
        not_before_ms=facts.not_before_ms,
        not_after_ms=facts.not_after_ms,
        issued_ms=facts.issued_ms,
    )
