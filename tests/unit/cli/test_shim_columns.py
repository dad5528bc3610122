"""What the old commands print: columns, spans, times, names of files."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from broker.cli.exits import Failure
from broker.cli.formatting import Now
from broker.cli.shims.columns import by_letters, by_names
from broker.cli.shims.patterns import Naming, file_name
from broker.cli.shims.rows import Row, Whose, clock, long_clock, numbers, wanted_states
from broker.cli.shims.sacct import moment_s
from broker.cli.shims.sacct_fields import FIELDS as SACCT
from broker.cli.shims.sacct_fields import Line
from broker.cli.shims.spool import Spool, entry_of
from broker.cli.shims.squeue import DEFAULT
from broker.cli.shims.squeue_fields import FIELDS
from tests.unit.client.speaking_server import ended, job_object

NAMING = Naming(number=12345678, name="run", user="ada")
NOW = Now(1_796_043_900_000)


def row(**changes: Any) -> Row:
    job = job_object(labels={"integer-id": "12345678"}, **changes)
    return Row(job, Whose("ada", "me"), NOW)


def test_the_default_line_of_squeue() -> None:
    line = by_letters(DEFAULT, FIELDS, "squeue")
    assert line.heading() == (
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    )
    assert line.text(row()) == (
        "          12345678       n/a    train       me PD       0:00      1 (None)"
    )


def test_names_of_columns_and_what_is_unknown() -> None:
    cells = by_names("JobID%-14,State%8,ExitCode", SACCT, "sacct", left=False)
    job = ended(job_object(labels={"integer-id": "12345678"}), "cancelled", 0)
    line = Line(Row(job, Whose("ada", "me"), NOW))
    assert [cell.text(line) for cell in cells] == ["12345678      ", "CANCELL+", "    0:15"]
    with pytest.raises(Failure):
        by_names("Nonsense", SACCT, "sacct", left=False)
    with pytest.raises(Failure):
        by_letters("%K", {}, "x")


@pytest.mark.parametrize(
    ("phase", "kind", "state"),
    [("queued", None, "PENDING"), ("held", None, "PENDING"), ("placed", None, "PENDING"),
     ("running", None, "RUNNING"), ("ended", "succeeded", "COMPLETED"),
     ("ended", "lost", "NODE_FAIL"),
     ("ended", "timed_out", "TIMEOUT"), ("ended", "out_of_memory", "OUT_OF_MEMORY"),
     ("ended", "preempted", "PREEMPTED"), ("ended", "something new", "FAILED"),
     ("something new", None, "PENDING")],
)  # fmt: skip
def test_states(phase: str, kind: str | None, state: str) -> None:
    assert row(phase=phase, outcome={"kind": kind} if kind else None).state == state


def test_spans() -> None:
    assert [clock(s) for s in (5, 3723, 183_845)] == ["0:05", "1:02:03", "2-03:04:05"]
    assert clock(None) == "UNLIMITED" and long_clock(65) == "00:01:05"


def test_what_numbers_may_look_like() -> None:
    assert numbers(["12,13_4", "14.batch", "15_[1-3,5]"]) == [
        ("12", ""), ("13", "4"), ("14", "batch"), ("15", "[1-3,5]"),
    ]  # fmt: skip
    assert wanted_states("pd,Running") == {"PENDING", "RUNNING"}


def test_names_of_output_files() -> None:
    assert file_name("slurm-%j.out", NAMING) == "slurm-12345678.out"
    assert file_name("%x-%A_%a-%4a-%u.log", NAMING, "7") == "run-12345678_7-0007-ada.log"
    assert file_name("%j", NAMING, "7") == "12345686" and file_name("100%%", NAMING) == "100%"
    assert file_name("a\\%j", NAMING) == "a%j" and file_name("%10j", NAMING) == "0012345678"


def test_times_of_sacct() -> None:
    now = int(datetime(2026, 11, 30, 15, 30).timestamp())
    assert moment_s("now-2hours", now) == now - 7200 and moment_s("", now) is None
    assert moment_s("2026-11-30T15:30", now) == now
    assert moment_s("midnight", now) == int(datetime(2026, 11, 30).timestamp())
    assert moment_s("12:00", now) == int(datetime(2026, 11, 30, 12).timestamp())
    with pytest.raises(Failure):
        moment_s("sometime", now)


def test_the_spool_is_the_users_own_and_holds_one_writer(tmp_path: Path) -> None:
    spool = Spool.of("https://broker", {"XDG_STATE_HOME": str(tmp_path)}, tmp_path)
    spool.add("j1", entry_of(NAMING, "out", tmp_path, ""))
    assert spool.jobs() == ["j1"] and spool.directory.stat().st_mode & 0o077 == 0
    with spool.held("j1") as first, spool.held("j1", wait=False) as second:
        assert first is not None and second is None
    spool.drop("j1")
    with spool.held("j1") as gone:
        assert gone is None
    assert spool.jobs() == []
