"""Enrolment on the memory store: who gets a certificate, who does not, and what they are told."""

import asyncio
import dataclasses

import pytest

from broker.control.enrolment import Enrolment, EnrolmentAnswer, Reach
from broker.control.enrolment_rules import EnrolmentCode, EnrolmentRefused, InvitationError
from broker.state import keys
from broker.state.backends.memory import MemoryStore
from broker.state.cluster_records import change_cluster, known_cluster, read_cluster
from broker.state.keyring import Keyring
from federation.certificates import (
    DAY_MS,
    facts_of,
    issued_by,
    key_sha256,
    make_csr,
    new_key,
    prove,
)
from federation.handshake.broker_half import TLS_VERSION, judge
from federation.handshake.values import Peer
from federation.ids import InvalidName, JobId, make_job_id
from federation.issuing import issue_agent, issue_client, make_ca
from federation.kv import Put, Txn
from federation.wire import records as pb

NOW_MS = 1_800_000_000_250
HOUR_MS = 3_600_000


class HandClock:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


class CountingIds:
    """Ids that are a function of how many were asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def job_id(self, now_ms: int) -> JobId:
        return make_job_id(now_ms, self.asked)

    def token_bytes(self, n: int) -> bytes:
        self.asked += 1
        return self.asked.to_bytes(n, "big")


class World:
    """One federation: store, keys, clock, enrolment."""

    def __init__(self, directory) -> None:
        self.clock = HandClock()
        self.ids = CountingIds()
        self.store = MemoryStore(self.clock)
        self.keyring = Keyring.open(directory, "fed", now_ms=NOW_MS, ids=self.ids)
        self.enrolment = Enrolment(
            self.store,
            self.keyring,
            self.clock,
            self.ids,
            lambda: Reach(("b1:443", "b2:443"), "https://b1"),
        )

    async def invited(self, cluster: str = "eu", ttl_s: int = 3_600) -> str:
        return await self.enrolment.invite(cluster, "eu-west", ttl_s, "ada")

    async def joined(self, key: bytes, cluster: str = "eu") -> EnrolmentAnswer:
        answer = await self.enrolment.enrol(await self.invited(cluster), csr(key))
        assert isinstance(answer, EnrolmentAnswer), answer
        return answer

    async def record(self, cluster: str = "eu") -> pb.ClusterRecord:
        stored = await read_cluster(self.store, cluster)
        assert stored is not None
        return stored.record

    async def opens_a_session(self, certificate_pem: bytes) -> bool:
        facts = facts_of(certificate_pem)
        known = known_cluster(await self.record(facts.cluster), 0)
        peer = Peer(
            TLS_VERSION,
            facts.cluster,
            facts.serial,
            facts.not_before_ms,
            facts.not_after_ms,
            facts.issued_ms,
        )
        good = judge(peer, known, self.clock.ms) is None
        verdict = await self.enrolment.session_check(certificate_pem)
        assert verdict.ok is good and "\n" not in verdict.reason
        return good


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "keys")


def csr(key: bytes) -> bytes:
    return make_csr(key, "agent")


def refused(answer, code: EnrolmentCode, *words: str) -> None:
    assert isinstance(answer, EnrolmentRefused), answer
    assert answer.code is code
    assert "\n" not in answer.text
    for word in words:
        assert word in answer.text, answer.text


# Invitations


async def test_an_invitation_makes_the_cluster_and_stores_no_token(world):
    token = await world.invited()
    assert token.startswith("tw-join_")
    record = await world.record()
    assert (record.state, record.region) == ("invited", "eu-west")
    everything = (await world.store.range("/tradewind/v1/")).kvs
    assert not any(token.encode() in kv.value or token in kv.key for kv in everything)


@pytest.mark.parametrize(
    ("cluster", "region"), [("Eu", "r"), ("", "r"), ("root", "r"), ("eu", "../x"), ("broker", "r")]
)
async def test_names_that_are_none_are_not_invited(world, cluster, region):
    with pytest.raises(InvalidName):
        await world.enrolment.invite(cluster, region, 60, "ada")


@pytest.mark.parametrize("ttl_s", [0, -1, 31 * 86_400])
async def test_an_invitation_has_a_sane_life(world, ttl_s):
    with pytest.raises(InvitationError, match="good for"):
        await world.invited(ttl_s=ttl_s)


async def test_a_cluster_does_not_change_its_region_by_invitation(world):
    await world.invited()
    with pytest.raises(InvitationError, match="in region eu-west, not us-east"):
        await world.enrolment.invite("eu", "us-east", 60, "ada")


# Tokens


async def test_a_token_gives_its_key_a_certificate_of_its_cluster(world):
    key = new_key()
    answer = await world.joined(key)
    facts = facts_of(answer.certificate_pem)
    assert (facts.federation, facts.cluster) == ("fed", "eu")
    assert facts.public_key_sha256 == key_sha256(key)
    assert issued_by(answer.certificate_pem, answer.ca_pem)
    assert (answer.cluster, answer.region) == ("eu", "eu-west")
    assert answer.session_addresses == ("b1:443", "b2:443")
    record = await world.record()
    assert record.state == "joined"
    assert record.certificate_serial == facts.serial
    assert record.certificate_expires_ms == facts.not_after_ms
    assert await world.opens_a_session(answer.certificate_pem)


@pytest.mark.parametrize("token", ["", "tw-join_", "tw-join_" + "A" * 43, "x" * 100_000, "\ud800"])
async def test_a_wrong_token_gets_nothing(world, token):
    await world.invited()
    answer = await world.enrolment.enrol(token, csr(new_key()))
    refused(answer, EnrolmentCode.TOKEN_UNKNOWN, "ask the operator")


async def test_an_expired_token_gets_nothing(world):
    token = await world.invited(ttl_s=60)
    world.clock.ms += 60_001
    answer = await world.enrolment.enrol(token, csr(new_key()))
    refused(answer, EnrolmentCode.TOKEN_EXPIRED, "expired 0 s ago")
    assert (await world.record()).state == "invited"


async def test_a_used_token_answers_the_key_that_used_it_until_it_expires(world):
    key, token = new_key(), await world.invited(ttl_s=60)
    first = await world.enrolment.enrol(token, csr(key))
    again = await world.enrolment.enrol(token, csr(key))
    assert isinstance(first, EnrolmentAnswer) and isinstance(again, EnrolmentAnswer)
    assert await world.opens_a_session(first.certificate_pem), "the answer may not have been lost"
    assert await world.opens_a_session(again.certificate_pem)
    world.clock.ms += 60_001
    late = await world.enrolment.enrol(token, csr(key))
    refused(late, EnrolmentCode.TOKEN_EXPIRED)


async def test_a_used_token_gives_another_key_nothing(world):
    token = await world.invited()
    mine = await world.enrolment.enrol(token, csr(new_key()))
    world.clock.ms += 300_000
    answer = await world.enrolment.enrol(token, csr(new_key()))
    refused(answer, EnrolmentCode.TOKEN_USED, "by another key", "4 min ago")
    assert await world.opens_a_session(mine.certificate_pem), "and takes nothing from the first"


async def test_of_two_keys_at_once_one_gets_the_certificate(world):
    token = await world.invited()
    answers = await asyncio.gather(
        *(world.enrolment.enrol(token, csr(new_key())) for _ in range(5))
    )
    assert sum(isinstance(a, EnrolmentAnswer) for a in answers) == 1
    for answer in answers:
        if not isinstance(answer, EnrolmentAnswer):
            refused(answer, EnrolmentCode.TOKEN_USED)


async def test_a_request_without_proof_of_its_key_does_not_use_the_token_up(world):
    token = await world.invited()
    for nonsense in (b"", b"nonsense", b"x" * 1_000_000, csr(new_key())[:-60]):
        refused(await world.enrolment.enrol(token, nonsense), EnrolmentCode.REQUEST_INVALID)
    assert isinstance(await world.enrolment.enrol(token, csr(new_key())), EnrolmentAnswer)


async def test_a_token_of_a_removed_cluster_gets_nothing(world):
    token = await world.invited()
    await change_cluster(world.store, "eu", remove)
    answer = await world.enrolment.enrol(token, csr(new_key()))
    refused(answer, EnrolmentCode.CLUSTER_REMOVED, "eu was removed")


async def test_a_token_whose_cluster_is_gone_gets_nothing(world):
    token = await world.invited()
    await world.store.txn(Txn(then=(Put(keys.cluster("eu"), b""),)))
    answer = await world.enrolment.enrol(token, csr(new_key()))
    assert isinstance(answer, EnrolmentRefused)


def remove(record: pb.ClusterRecord) -> None:
    record.state = "removed"


# Renewal


async def test_renewal_proves_the_old_key_and_takes_a_new_one(world):
    old, new = new_key(), new_key()
    first = await world.joined(old)
    world.clock.ms += 16 * HOUR_MS
    request = csr(new)
    answer = await world.enrolment.renew(first.certificate_pem, request, prove(old, request))
    assert isinstance(answer, EnrolmentAnswer)
    facts = facts_of(answer.certificate_pem)
    assert facts.public_key_sha256 == key_sha256(new)
    assert facts.not_after_ms // 1000 == (world.clock.ms + DAY_MS) // 1000
    assert (await world.record()).certificate_serial == facts.serial
    assert await world.opens_a_session(first.certificate_pem), "until the new one is in use"
    assert await world.opens_a_session(answer.certificate_pem)


async def test_a_request_signed_by_the_old_key_itself_is_proof(world):
    key = new_key()
    first = await world.joined(key)
    answer = await world.enrolment.renew(first.certificate_pem, csr(key), b"")
    assert isinstance(answer, EnrolmentAnswer)


async def test_without_the_old_key_nothing_is_renewed(world):
    first = await world.joined(new_key())
    thief = new_key()
    request = csr(thief)
    for proof in (b"", b"nonsense", prove(thief, request)):
        answer = await world.enrolment.renew(first.certificate_pem, request, proof)
        refused(answer, EnrolmentCode.PROOF_INVALID, "possession")


async def test_a_proof_for_one_request_serves_no_other(world):
    key = new_key()
    first = await world.joined(key)
    proof = prove(key, csr(new_key()))
    answer = await world.enrolment.renew(first.certificate_pem, csr(new_key()), proof)
    refused(answer, EnrolmentCode.PROOF_INVALID)


async def test_an_expired_certificate_opens_no_session_and_may_renew_for_30_days(world):
    key = new_key()
    first = await world.joined(key)
    world.clock.ms += 2 * DAY_MS
    assert not await world.opens_a_session(first.certificate_pem)
    verdict = await world.enrolment.session_check(first.certificate_pem)
    assert (verdict.code, verdict.reason) == (
        "certificate_expired",
        "the certificate of eu expired 23 h ago; it may only renew",
    )
    world.clock.ms += 28 * DAY_MS
    answer = await world.enrolment.renew(first.certificate_pem, csr(key), b"")
    assert isinstance(answer, EnrolmentAnswer)
    assert await world.opens_a_session(answer.certificate_pem)
    world.clock.ms += 2 * DAY_MS
    late = await world.enrolment.renew(first.certificate_pem, csr(key), b"")
    refused(late, EnrolmentCode.CERTIFICATE_TOO_OLD, "30 days ago", "new invitation")


async def test_a_foreign_certificate_renews_nothing_and_opens_nothing(world):
    await world.joined(new_key())
    key, foreign = new_key(), make_ca("fed", now_ms=NOW_MS)
    forged = issue_agent(foreign, csr(key), federation="fed", cluster="eu", now_ms=NOW_MS)
    answer = await world.enrolment.renew(forged, csr(key), b"")
    refused(answer, EnrolmentCode.CERTIFICATE_FOREIGN, "not of an agent of this federation")
    verdict = await world.enrolment.session_check(forged)
    assert (verdict.ok, verdict.code) == (False, "certificate_foreign")


async def test_the_brokers_own_certificate_is_no_agents(world):
    made = issue_client(world.keyring.ca, "broker", now_ms=NOW_MS)
    answer = await world.enrolment.renew(made.certificate_pem, csr(made.key_pem), b"")
    refused(answer, EnrolmentCode.CERTIFICATE_FOREIGN)
    verdict = await world.enrolment.session_check(made.certificate_pem)
    assert (verdict.ok, verdict.code) == (False, "certificate_missing")


async def test_a_cluster_nobody_knows_gets_nothing(world):
    key = new_key()
    stray = issue_agent(world.keyring.ca, csr(key), federation="fed", cluster="gone", now_ms=NOW_MS)
    answer = await world.enrolment.renew(stray, csr(key), b"")
    refused(answer, EnrolmentCode.CLUSTER_UNKNOWN)
    assert (await world.enrolment.session_check(stray)).code == "cluster_unknown"


@pytest.mark.parametrize("pem", [b"", b"nonsense", b"x" * 1_000_000])
async def test_nonsense_is_told_so(world, pem):
    refused(await world.enrolment.renew(pem, csr(new_key()), b""), EnrolmentCode.REQUEST_INVALID)
    verdict = await world.enrolment.session_check(pem)
    assert not verdict.ok and "\n" not in verdict.reason


async def test_a_certificate_of_the_ca_before_renews_and_of_a_retired_one_does_not(world):
    key = new_key()
    first = await world.joined(key)
    world.keyring.introduce_ca(now_ms=world.clock.ms)
    world.keyring.promote_ca()
    answer = await world.enrolment.renew(first.certificate_pem, csr(key), b"")
    assert isinstance(answer, EnrolmentAnswer)
    assert issued_by(answer.certificate_pem, world.keyring.ca.certificate_pem)
    world.keyring.retire_ca()
    late = await world.enrolment.renew(first.certificate_pem, csr(key), b"")
    refused(late, EnrolmentCode.CERTIFICATE_FOREIGN)


# Losing an identity


async def test_revocation_voids_every_certificate_and_the_token_behind_them(world):
    key, token = new_key(), await world.invited()
    first = await world.enrolment.enrol(token, csr(key))
    world.clock.ms += 1_000
    second = await world.enrolment.renew(first.certificate_pem, csr(key), b"")
    world.clock.ms += 1_000
    assert await world.enrolment.revoke("eu")
    for made in (first, second):
        assert not await world.opens_a_session(made.certificate_pem)
        assert (await world.enrolment.session_check(made.certificate_pem)).code == (
            "certificate_revoked"
        )
        answer = await world.enrolment.renew(made.certificate_pem, csr(key), b"")
        refused(answer, EnrolmentCode.CERTIFICATE_REVOKED, "join again")
    answer = await world.enrolment.enrol(token, csr(key))
    refused(answer, EnrolmentCode.CERTIFICATE_REVOKED, "revoked or replaced")
    fresh = await world.joined(new_key())
    assert await world.opens_a_session(fresh.certificate_pem)
    assert not await world.enrolment.revoke("nobody")


async def test_joining_anew_with_another_key_voids_what_the_cluster_had_at_once(world):
    old = new_key()
    first = await world.joined(old)
    second = await world.joined(new_key())
    third = await world.joined(new_key())
    assert not await world.opens_a_session(first.certificate_pem)
    assert not await world.opens_a_session(second.certificate_pem)
    assert await world.opens_a_session(third.certificate_pem)
    refused(
        await world.enrolment.renew(first.certificate_pem, csr(old), b""),
        EnrolmentCode.CERTIFICATE_REVOKED,
    )


async def test_a_removed_cluster_comes_back_by_invitation_only_and_old_certificates_do_not(world):
    key = new_key()
    first = await world.joined(key)
    await change_cluster(world.store, "eu", remove)
    assert not await world.opens_a_session(first.certificate_pem)
    refused(
        await world.enrolment.renew(first.certificate_pem, csr(key), b""),
        EnrolmentCode.CLUSTER_REMOVED,
    )
    token = await world.enrolment.invite("eu", "us-east", 60, "ada")
    assert not await world.opens_a_session(first.certificate_pem), "not by the invitation alone"
    answer = await world.enrolment.enrol(token, csr(new_key()))
    assert isinstance(answer, EnrolmentAnswer) and answer.region == "us-east"
    assert not await world.opens_a_session(first.certificate_pem)
    assert await world.opens_a_session(answer.certificate_pem)


async def test_what_others_write_in_the_record_is_kept(world):
    key = new_key()
    first = await world.joined(key)
    stored = await read_cluster(world.store, "eu")
    unknown = b"\xa2\x06\x03new"  # a field of a version to come
    raw = stored.record.SerializeToString() + unknown
    await world.store.txn(Txn(then=(Put(keys.cluster("eu"), raw),)))

    def journal(record: pb.ClusterRecord) -> None:
        record.journal = "disk-1"

    renewal = world.enrolment.renew(first.certificate_pem, csr(key), b"")
    await asyncio.gather(renewal, change_cluster(world.store, "eu", journal))
    kv = await world.store.get(keys.cluster("eu"))
    assert unknown in kv.value
    record = await world.record()
    assert record.journal == "disk-1"
    assert record.certificate_serial != facts_of(first.certificate_pem).serial


async def test_a_draining_cluster_stays_so_when_it_renews(world):
    key = new_key()
    first = await world.joined(key)

    def drain(record: pb.ClusterRecord) -> None:
        record.state = "draining"

    await change_cluster(world.store, "eu", drain)
    assert isinstance(
        await world.enrolment.renew(first.certificate_pem, csr(key), b""), EnrolmentAnswer
    )
    assert (await world.record()).state == "draining"


def test_answers_carry_no_private_key():
    assert not {f.name for f in dataclasses.fields(EnrolmentAnswer)} & {"key_pem", "key"}
