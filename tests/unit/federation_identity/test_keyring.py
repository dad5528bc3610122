"""The broker's key directory: made once, private, rotated without voiding anything."""

import multiprocessing
import os
import stat

import pytest

from broker.state.keyring import Keyring, KeyringError
from federation.certificates import (
    DAY_MS,
    ca_hashes,
    facts_of,
    issued_by,
    make_csr,
    new_key,
    server_names,
)
from federation.ids import JobId, make_job_id
from federation.issuing import issue_agent
from federation.tickets import Refusal, Ticket, read_ticket, sign_ticket, spec_digest

NOW_MS = 1_800_000_000_000


class CountingIds:
    """Ids that are a function of how many were asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def job_id(self, now_ms: int) -> JobId:
        return make_job_id(now_ms, self.asked)

    def token_bytes(self, n: int) -> bytes:
        self.asked += 1
        return self.asked.to_bytes(n, "big")


def opened(path, federation="fed"):
    return Keyring.open(path, federation, now_ms=NOW_MS, ids=CountingIds())


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "state" / "keys"


def test_first_start_makes_private_keys_and_the_next_one_loads_them(directory):
    first = opened(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(f.stat().st_mode) for f in directory.iterdir()} == {0o600}
    again = opened(directory)
    assert again.ca == first.ca
    assert again.signer.kid == first.signer.kid
    assert again.mac_key == first.mac_key
    assert list(directory.parent.iterdir()) == [directory]


def test_an_empty_directory_prepared_by_hand_is_filled(directory):
    directory.mkdir(parents=True)
    opened(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", [".", "ca.pem", "keyring.json"])
@pytest.mark.parametrize("mode", [0o040, 0o004, 0o020])
def test_keys_open_to_others_are_refused_with_the_remedy(directory, name, mode):
    opened(directory)
    target = directory / name
    target.chmod(stat.S_IMODE(target.stat().st_mode) | mode)
    with pytest.raises(KeyringError, match="open to others.*chmod go-rwx"):
        opened(directory)


def test_keys_of_another_federation_are_refused(directory):
    opened(directory)
    with pytest.raises(KeyringError, match="'fed', not of 'other'"):
        opened(directory, "other")


@pytest.mark.parametrize("name", ["ca.pem", "keyring.json"])
@pytest.mark.parametrize("damage", [None, b"", b"{}", b"nonsense", b"\xff"])
def test_damaged_keys_are_named_not_replaced(directory, name, damage):
    opened(directory)
    target = directory / name
    target.unlink()
    if damage is not None:
        target.write_bytes(damage)
        target.chmod(0o600)
    with pytest.raises(KeyringError) as raised:
        opened(directory)
    assert "\n" not in str(raised.value)


def _race(path, answers):
    answers.put(Keyring.open(path, "fed", now_ms=NOW_MS, ids=RandomIds()).signer.kid)


class RandomIds(CountingIds):
    def token_bytes(self, n: int) -> bytes:
        return os.urandom(n)


def test_two_first_starts_at_once_end_with_the_same_keys(directory):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    racers = [context.Process(target=_race, args=(directory, answers)) for _ in range(3)]
    for racer in racers:
        racer.start()
    kids = {answers.get(timeout=30) for _ in racers}
    for racer in racers:
        racer.join()
    assert len(kids) == 1


def ticket(uid: str) -> Ticket:
    return Ticket(uid, "j", 1, "eu", "t", "s", spec_digest(b""), NOW_MS)


def test_rotating_ticket_keys_voids_no_ticket_in_flight_and_announces_before_signing(directory):
    ring = opened(directory)
    for round_ in range(4):
        told = ring.ticket_keys
        in_flight = sign_ticket(ticket(f"before-{round_}"), ring.signer)
        ring.rotate_ticket_key()
        assert ring.signer.kid in told, "agents knew the key before it signed"
        assert isinstance(read_ticket(in_flight, ring.ticket_keys), Ticket)
        assert len(ring.ticket_keys) == 3
    ring.rotate_ticket_key()
    assert isinstance(read_ticket(in_flight, ring.ticket_keys), Refusal)
    assert isinstance(read_ticket(in_flight, ring.known_ticket_keys), Ticket)
    assert opened(directory).ticket_keys == ring.ticket_keys
    assert len(list(directory.glob("ticket-*.key"))) == 2, "old private halves are gone"


def test_another_process_sees_a_rotation_when_it_refreshes(directory):
    ring, other = opened(directory), opened(directory)
    ring.rotate_ticket_key()
    assert other.signer.kid != ring.signer.kid
    other.refresh()
    assert other.signer.kid == ring.signer.kid


def test_records_name_their_mac_key(directory):
    ring = opened(directory)
    old_kid, old_key = ring.mac_key
    ring.rotate_mac_key()
    assert ring.mac_key[0] != old_kid
    assert opened(directory).mac_key_of(old_kid) == old_key
    assert ring.mac_key_of("unknown") is None


def test_server_certificate_is_kept_until_names_change_or_it_is_due(directory):
    ring = opened(directory)
    first = ring.server(["localhost", "127.0.0.1"], now_ms=NOW_MS)
    assert server_names(first.certificate_pem) == ["localhost", "127.0.0.1"]
    assert issued_by(first.certificate_pem, ring.ca_bundle)
    again = opened(directory)
    assert again.server(["localhost", "127.0.0.1"], now_ms=NOW_MS + 59 * DAY_MS) == first
    assert again.server(["localhost", "127.0.0.1"], now_ms=NOW_MS + 61 * DAY_MS) != first
    assert server_names(ring.server(["b"], now_ms=NOW_MS).certificate_pem) == ["b"]


def test_the_broker_is_known_to_etcd_by_its_common_name(directory):
    made = opened(directory).etcd_client(now_ms=NOW_MS)
    assert facts_of(made.certificate_pem).common_name == "broker"
    assert opened(directory).etcd_client(now_ms=NOW_MS) == made


def agent_of(ring) -> bytes:
    asked = make_csr(new_key(), "x")
    return issue_agent(ring.ca, asked, federation="fed", cluster="eu", now_ms=NOW_MS)


def test_a_ca_is_replaced_without_a_moment_at_which_a_good_certificate_is_refused(directory):
    ring = opened(directory)
    old_agent, old_server = agent_of(ring), ring.server(["b"], now_ms=NOW_MS)
    told = ring.ca_bundle
    ring.introduce_ca(now_ms=NOW_MS)
    told_next = ring.ca_bundle
    assert issued_by(agent_of(ring), told), "the next CA is trusted, not used"
    with pytest.raises(KeyringError, match="under way"):
        ring.introduce_ca(now_ms=NOW_MS)
    ring.promote_ca()
    new_agent, new_server = agent_of(ring), ring.server(["b"], now_ms=NOW_MS)
    assert new_server != old_server
    assert issued_by(new_server.certificate_pem, told_next)
    assert issued_by(old_agent, ring.ca_bundle) and issued_by(new_agent, ring.ca_bundle)
    assert opened(directory).ca_bundle == ring.ca_bundle
    ring.retire_ca()
    assert not issued_by(old_agent, ring.ca_bundle)
    assert issued_by(new_agent, ring.ca_bundle)
    assert len(ca_hashes(ring.ca_bundle)) == 1
    with pytest.raises(KeyringError, match="no previous CA"):
        ring.retire_ca()
    with pytest.raises(KeyringError, match="introduce"):
        ring.promote_ca()
