"""Files carried between agent and pods: who has a claim, what is appended, what is packed."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from regional_agent.act.carry import files
from regional_agent.act.keeper import capture
from regional_agent.act.matching import matching


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    (tmp_path / "claims").mkdir()
    return tmp_path / "claims"


def test_of_two_pods_of_a_task_one_runs_and_that_one_may_ask_again(claims: Path) -> None:
    """A second pod of the same task, however it came about, finds the claim taken; a pod whose
    answer was lost is told the same once more."""
    assert files.claim(claims, "0", 0, "pod-a").granted
    assert files.claim(claims, "0", 0, "pod-a").granted
    other = files.claim(claims, "0", 0, "pod-b")
    assert not other.granted and other.lay == {"0": "run pod-a\n"}


def test_a_task_that_was_taken_back_runs_only_in_the_part_it_was_given_to(claims: Path) -> None:
    (claims / "5").write_text("dropped 0\n")
    assert not files.claim(claims, "5", 0, "pod-a").granted
    later = files.claim(claims, "5", 1, "pod-b")
    assert later.granted and later.lay == {"5": "dropped 0\n"}, "its script takes the other name"
    assert (claims / "5.1").read_text() == "run pod-b\n"
    again = files.claim(claims, "5", 1, "pod-c")
    assert not again.granted and again.lay == {"5": "dropped 0\n", "5.1": "run pod-b\n"}


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    assert files.put_once(tmp_path / "first.0", "7\n")
    assert not files.put_once(tmp_path / "first.0", "143\n")
    assert (tmp_path / "first.0").read_text() == "7\n"
    assert [p.name for p in tmp_path.iterdir()] == ["first.0"]


def test_a_piece_of_a_log_that_comes_twice_is_there_once(tmp_path: Path) -> None:
    log = tmp_path / "output"
    assert files.append(log, 0, b"one") == 3
    assert files.append(log, 0, b"one") == 3, "answered by where the next begins"
    assert files.append(log, 5, b"late") == 3
    assert files.append(log, 3, b"two") == 6
    assert log.read_bytes() == b"onetwo"


def test_no_pod_fills_the_disk_of_the_agent_by_its_log(tmp_path: Path) -> None:
    log = tmp_path / "output"
    with log.open("wb") as file:
        file.truncate(capture.KEPT_BYTES - 2)
    assert files.append(log, capture.KEPT_BYTES - 2, b"abcdef") == capture.KEPT_BYTES
    assert log.stat().st_size == capture.KEPT_BYTES


def test_a_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "output").symlink_to(tmp_path / "journal")
    with pytest.raises(OSError, match="symbolic"):
        files.append(tmp_path / "output", 0, b"x")


def test_a_pod_is_given_scripts_and_neither_order_nor_journal(tmp_path: Path) -> None:
    for name in ("job-0.sh", "tasks-1", "env.sh", "rank.sh", "run", "keep", "order.json", "journal",
                 "work.tar", "duplicates"):  # fmt: skip
        (tmp_path / name).write_text(name)
    (tmp_path / "job-1.sh").symlink_to(tmp_path / "journal")
    with tarfile.open(fileobj=io.BytesIO(files.scripts(tmp_path))) as tar:
        assert tar.getnames() == ["env.sh", "job-0.sh", "keep", "rank.sh", "run", "tasks-1"]


def test_names_lead_nowhere_else() -> None:
    for name in ("../order.json", "0/../1", "", ".0.17", "journal", "stop.1", "first.", "rank.-1"):
        assert not files.CLAIM.fullmatch(name) and not files.MARK.fullmatch(name), name
    for name in ("0", "17", "17.2", "rank.3"):
        assert files.CLAIM.fullmatch(name) and files.MARK.fullmatch(name)
    assert not files.CLAIM.fullmatch("stop") and not files.CLAIM.fullmatch("first.0")


def test_all_of_a_working_directory_is_packed_by_names_within_it(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "deep/er").mkdir(parents=True)
    (work / "deep/er/file").write_text("x")
    (work / "link").symlink_to("deep/er/file")
    files.pack(work, files.everything(work), tmp_path / "tar")
    with tarfile.open(tmp_path / "tar") as tar:
        assert tar.getnames() == ["deep", "link", "deep/er", "deep/er/file"]


def test_what_comes_back_is_what_patterns_name_and_no_link(tmp_path: Path) -> None:
    (tmp_path / "out/deep").mkdir(parents=True)
    (tmp_path / "out/deep/a").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "out/link").symlink_to("/etc/passwd")
    assert list(matching(tmp_path, ["out", "*.txt"])) == ["b.txt", "out/deep/a"]
    with pytest.raises(ValueError, match="working directory"):
        matching(tmp_path, ["../x"])
