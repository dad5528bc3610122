from __future__ import annotations

import io
import os
import random
import tarfile
from pathlib import Path

import pytest

from broker.client.errors import BadFile
from broker.client.snapshot import pack_directory
from broker.client.upload import prepare_job
from federation.jobs import parse_job_file


def write(top: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return top


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        return tar.getnames()


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    files = {"b.py": "b", "a.py": "a", "sub/c.txt": "c"}
    one = write(tmp_path / "one", files)
    two = write(tmp_path / "two", dict(reversed(files.items())))
    os.utime(two / "a.py", (1, 1))
    (two / "a.py").chmod(0o600)
    assert pack_directory(one).content == pack_directory(two).content
    (two / "a.py").chmod(0o755)
    assert pack_directory(one).sha256 != pack_directory(two).sha256


def test_ignore_files_are_honoured_in_every_directory(tmp_path: Path) -> None:
    write(tmp_path, {
        ".gitignore": "*.log\n/data/\nbuild\n", ".twignore": "!keep.log\nbig.bin\n",
        "a.py": "", "x.log": "", "keep.log": "", "big.bin": "", "data/d": "", "sub/data/d": "",
        "sub/build/o": "", "sub/.gitignore": "!y.log\nonly-here\n", "sub/y.log": "",
        "sub/only-here": "", "only-here": "", ".git/config": "",
    })  # fmt: skip
    assert names(pack_directory(tmp_path).content) == [
        ".gitignore", ".twignore", "a.py", "keep.log", "only-here", "sub", "sub/.gitignore",
        "sub/data", "sub/data/d", "sub/y.log",
    ]  # fmt: skip


def test_links_stay_inside(tmp_path: Path) -> None:
    top = write(tmp_path / "top", {"a": "a"})
    (top / "inside").symlink_to("a")
    (top / "outside").symlink_to("../../etc/passwd")
    (top / "absolute").symlink_to("/etc/passwd")
    os.mkfifo(top / "pipe")
    archive = pack_directory(top)
    assert names(archive.content) == ["a", "inside"]
    assert len(archive.warnings) == 2


def test_many_files_are_warned_of(tmp_path: Path) -> None:
    for number in range(10_001):
        (tmp_path / str(number)).touch()
    assert ".twignore" in pack_directory(tmp_path).warnings[0]


def test_more_than_64_mib_is_refused_with_a_remedy(tmp_path: Path) -> None:
    dice = random.Random(1)
    for number in range(9):
        (tmp_path / str(number)).write_bytes(dice.randbytes(8 << 20))
    with pytest.raises(BadFile, match="twignore"):
        pack_directory(tmp_path)


def test_a_job_file_becomes_a_spec_and_blobs(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "print(1)", "src/a.py": "a", "src/b.py": "b"})
    (tmp_path / "train.py").chmod(0o700)
    job = parse_job_file({
        "run": "python train.py", "workdir": "src", "files": ["train.py"],
    })  # fmt: skip
    prepared = prepare_job(job, tmp_path)
    (file,) = prepared.spec.files
    assert (file.path, file.mode, file.size_bytes) == ("train.py", 0o755, 8)
    assert prepared.spec.workdir is not None
    assert {blob.sha256 for blob in prepared.blobs} == {file.sha256, prepared.spec.workdir.archive}
    assert prepare_job(job, tmp_path).spec == prepared.spec


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"run": "x", "files": ["nowhere.py"]}, "cannot read"),
        ({"run": "x", "files": ["."]}, "is a directory"),
        ({"run": "x", "workdir": "nowhere"}, "is not a directory"),
    ],
)
def test_paths_that_cannot_be_used_are_named(
    tmp_path: Path, job: dict[str, object], said: str
) -> None:
    if job.get("files") == ["."]:
        job = {"run": "x", "files": {"all": "."}}
    with pytest.raises(BadFile, match=said):
        prepare_job(parse_job_file(job), tmp_path)
