"""The agent's identity on disk: whole after a crash anywhere, refused when it is not its own."""

import shutil
import stat

import pytest

from federation.certificates import key_sha256, make_csr, new_key
from federation.issuing import issue_agent, make_ca
from regional_agent.identity import (
    IdentityError,
    Issued,
    has_identity,
    install,
    load_identity,
    requested_key,
)

NOW_MS = 1_800_000_000_000
CA = make_ca("fed", now_ms=NOW_MS)


def issued(key: bytes, cluster: str = "eu", ca=CA, **changes) -> Issued:
    certificate = issue_agent(
        ca, make_csr(key, "x"), federation="fed", cluster=cluster, now_ms=NOW_MS
    )
    values = {
        "certificate_pem": certificate,
        "ca_pem": ca.certificate_pem,
        "cluster": cluster,
        "region": "eu-west",
        "session_addresses": ("b1:443",),
        "api_url": "https://b1",
    } | changes
    return Issued(**values)


def joined(path):
    key = requested_key(path)
    return install(path, key, issued(key))


def test_an_identity_is_private_and_read_back(tmp_path):
    made = joined(tmp_path)
    assert load_identity(tmp_path) == made
    assert (made.cluster, made.region, made.session_addresses) == ("eu", "eu-west", ("b1:443",))
    directory = tmp_path / "identity"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(f.stat().st_mode) for f in directory.iterdir()} == {0o600}
    assert {f.name for f in directory.iterdir()} == {
        "agent.key",
        "agent.crt",
        "ca.crt",
        "identity.json",
    }


def test_a_request_under_way_keeps_its_key_and_the_next_one_has_another(tmp_path):
    key = requested_key(tmp_path)
    assert requested_key(tmp_path) == key
    install(tmp_path, key, issued(key))
    assert requested_key(tmp_path) != key


@pytest.mark.parametrize("writes", range(6))
def test_a_crash_between_any_two_writes_leaves_the_old_or_the_new_identity(tmp_path, writes):
    before, after = tmp_path / "before", tmp_path / "after"
    old = joined(before)
    key = requested_key(before)
    shutil.copytree(before, after, copy_function=shutil.copy2)
    new = install(after, key, issued(key))
    order = ["ca.crt", "identity.json", "agent.crt", "agent.key"]
    for name in order[:writes]:
        shutil.copy2(after / "identity" / name, before / "identity" / name)
    if writes > len(order):
        (before / "identity" / "agent.key.next").unlink()
    found = load_identity(before)
    expected = new if writes >= 3 else old
    assert found.credential == expected.credential
    assert key_sha256(found.credential.key_pem) == found.facts.public_key_sha256
    assert load_identity(before) == found


def test_no_identity_says_what_to_do(tmp_path):
    assert not has_identity(tmp_path)
    with pytest.raises(IdentityError, match="tradewind-agent join"):
        load_identity(tmp_path)


@pytest.mark.parametrize("name", ["agent.key", "agent.crt", "ca.crt", "identity.json"])
def test_files_open_to_others_are_refused(tmp_path, name):
    joined(tmp_path)
    (tmp_path / "identity" / name).chmod(0o640)
    with pytest.raises(IdentityError, match="open to others.*chmod"):
        load_identity(tmp_path)


@pytest.mark.parametrize("name", ["agent.key", "agent.crt", "ca.crt", "identity.json"])
@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\xff", b"{}", b"[]"])
def test_damage_is_told_in_one_line(tmp_path, name, damage):
    joined(tmp_path)
    (tmp_path / "identity" / name).write_bytes(damage)
    with pytest.raises(IdentityError) as raised:
        load_identity(tmp_path)
    assert "\n" not in str(raised.value)


def test_a_damaged_key_of_a_request_is_replaced(tmp_path):
    requested_key(tmp_path)
    (tmp_path / "identity" / "agent.key.next").write_bytes(b"nonsense")
    key = requested_key(tmp_path)
    assert install(tmp_path, key, issued(key)).cluster == "eu"


def of_another_cluster(key: bytes) -> Issued:
    return issued(key, certificate_pem=issued(key, "us").certificate_pem)


def of_another_ca(key: bytes) -> Issued:
    return issued(key, ca_pem=make_ca("fed", now_ms=NOW_MS).certificate_pem)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda key: issued(new_key()), "another key"),
        (of_another_ca, "its own CA did not sign"),
        (lambda key: issued(key, certificate_pem=b"nonsense"), "cannot be used"),
        (of_another_cluster, "a certificate of us, and calls this cluster eu"),
    ],
)
def test_an_answer_that_does_not_fit_changes_nothing(tmp_path, answer, words):
    old = joined(tmp_path)
    key = requested_key(tmp_path)
    with pytest.raises(IdentityError, match=words):
        install(tmp_path, key, answer(key))
    assert load_identity(tmp_path) == old
