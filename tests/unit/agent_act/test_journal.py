import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from regional_agent.act.journal import Acceptance, Journal, JournalCorrupt, JournalInUse


def acceptance(uid: str = "job-1", dispatch_seq: int = 1) -> Acceptance:
    return Acceptance(uid, dispatch_seq, 7, b"ticket", b"spec", b"placement", "{}", 1000)


def reopen(journal: Journal) -> Journal:
    journal.close()
    return Journal.open(journal.path, "another")


def test_what_was_committed_is_there_again(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", "first")
    with journal.commit() as tx:
        tx.take(1, 7)
        tx.accept(acceptance())
        assert tx.event("job-1", b"accepted") == 1
        tx.set_state("job-1", "running", 2000, b"x")
        tx.set_addresses(["a:1", "b:2"])
    journal = reopen(journal)
    assert journal.position.journal_id == "first"
    assert (journal.position.event_seq, journal.position.dispatch_seq) == (1, 1)
    assert (journal.position.epoch, journal.position.addresses) == (7, ("a:1", "b:2"))
    (attempt,) = journal.attempts()
    assert attempt.acceptance == acceptance()
    assert (attempt.state, attempt.state_ms, attempt.detail) == ("running", 2000, b"x")
    assert [e.payload for e in journal.events_after(0)] == [b"accepted"]


def test_a_group_is_all_or_nothing(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", "first")
    with pytest.raises(KeyError), journal.commit() as tx:
        tx.take(5, 9)
        tx.accept(acceptance())
        tx.event("job-1", b"e")
        tx.set_state("unknown-1", "running", 1)
    assert journal.attempts() == () and journal.events_after(0) == ()
    assert journal.position.dispatch_seq == 0
    with journal.commit() as tx:
        assert tx.event("job-1", b"e") == 1


def test_an_attempt_is_accepted_once(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", "first")
    with journal.commit() as tx:
        tx.accept(acceptance())
    with pytest.raises(ValueError, match="accepted before"), journal.commit() as tx:
        tx.accept(acceptance(dispatch_seq=2))


def test_sequence_numbers_never_come_again(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", "first")
    with journal.commit() as tx:
        for n in range(5):
            tx.event("job-1", b"%d" % n)
        tx.acknowledge(5)
    assert journal.events_after(0) == ()
    journal = reopen(journal)
    with journal.commit() as tx:
        assert tx.event("job-1", b"e") == 6
        tx.raise_event_seq(100)
        tx.raise_event_seq(50)
        assert tx.event("job-1", b"e") == 101
        tx.take(9, 4)
        tx.take(3, 2)
    assert (journal.position.dispatch_seq, journal.position.epoch) == (9, 4)


def test_events_stay_until_acknowledged_and_tombstones_until_forgotten(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", "first")
    with journal.commit() as tx:
        tx.accept(acceptance())
        tx.event("job-1", b"accepted")
        tx.ended("job-1", b"ended", 3000, b"why")
        assert not tx.forget("job-1")
    assert [e.seq for e in journal.events_after(1)] == [2]
    with journal.commit() as tx:
        tx.acknowledge(1)
        assert not tx.forget("job-1")
    assert [e.seq for e in journal.events_after(0)] == [2]
    (tombstone,) = journal.attempts()
    assert (tombstone.state, tombstone.ended_seq, tombstone.detail) == ("ended", 2, b"why")
    with journal.commit() as tx:
        # More than was ever written cannot be acknowledged.
        tx.acknowledge(99)
        assert tx.forget("job-1")
        assert not tx.forget("job-1")
    assert journal.position.event_seq_acked == 2
    assert journal.attempt("job-1") is None


def test_a_running_attempt_is_not_forgotten(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", "first")
    with journal.commit() as tx:
        tx.accept(acceptance())
        tx.acknowledge(9)
        assert not tx.forget("job-1")


def test_a_new_ticket_for_the_same_attempt(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", "first")
    with journal.commit() as tx:
        tx.accept(acceptance())
        tx.retake("job-1", 4, 8, b"new")
        tx.set_reservation("job-1", "[1]")
    found = journal.attempt("job-1")
    assert found is not None
    assert (found.acceptance.dispatch_seq, found.acceptance.epoch) == (4, 8)
    assert (found.acceptance.ticket, found.acceptance.reservation) == (b"new", "[1]")


def test_one_agent_per_journal(tmp_path: Path) -> None:
    holder = Journal.open(tmp_path / "journal", "first")
    with pytest.raises(JournalInUse):
        Journal.open(tmp_path / "journal", "second")
    assert reopen(holder).position.journal_id == "first"


@pytest.mark.parametrize("damage", [b"", b"not a database" * 100])
def test_a_file_that_is_no_journal(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(damage)
    if damage:
        with pytest.raises(JournalCorrupt):
            Journal.open(path, "first")
        assert path.read_bytes() == damage
    else:
        assert Journal.open(path, "first").position.journal_id == "first"


def test_damage_within_is_found(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", "first")
    with journal.commit() as tx:
        for n in range(2000):
            tx.event("job-1", b"%d" % n * 50)
    journal.close()
    data = bytearray(journal.path.read_bytes())
    data[20_000:60_000] = os.urandom(40_000)
    journal.path.write_bytes(data)
    with pytest.raises(JournalCorrupt):
        Journal.open(journal.path, "first")


def test_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal", "first")
    journal.close()
    db = sqlite3.connect(journal.path)
    db.execute("UPDATE meta SET value='99' WHERE key='schema'")
    db.commit()
    db.close()
    with pytest.raises(JournalCorrupt, match="newer"):
        Journal.open(journal.path, "first")


WRITER = """
import sys
from pathlib import Path
from regional_agent.act.journal import Acceptance, Journal
journal = Journal.open(Path(sys.argv[1]), "first")
n = 0
while True:
    with journal.commit() as tx:
        tx.accept(Acceptance(f"job-{n}", n, 1, b"t" * 200, b"s" * 500, b"p", "{}", 1))
        seq = tx.event(f"job-{n}", b"e" * 100)
        tx.take(n, 1)
    print(seq, flush=True)
    n += 1
"""


def test_killed_while_writing(tmp_path: Path) -> None:
    for round_number in range(3):
        path = tmp_path / f"journal{round_number}"
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(20 + round_number)]
        writer.send_signal(signal.SIGKILL)
        told += [int(line) for line in writer.stdout.read().split()]
        writer.wait()
        journal = Journal.open(path, "other")
        # All that was said to be there is; at most the commit under way is there unsaid.
        assert journal.position.event_seq in (told[-1], told[-1] + 1)
        assert len(journal.attempts()) == journal.position.event_seq
        assert len(journal.events_after(0, 10_000)) == journal.position.event_seq
        journal.close()
