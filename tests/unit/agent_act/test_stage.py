import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from federation.refusals import Refusal, RefusalCode
from regional_agent.act.blobs import BlobUnavailable, BlobUnknown
from regional_agent.act.cache import BlobCache
from regional_agent.act.stage import Staged, StageFile, Stager, StageRequest
from regional_agent.act.unpack import UnsafeArchive, unpack


class Ticking:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.s = 1_000.0

    def now_ms(self) -> int:
        return int(self.s * 1000)

    def monotonic_s(self) -> float:
        return self.s


class Shelf:
    """A blob source that holds what it was given, and counts what it hands out."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.broken = False

    def put(self, data: bytes, under: str | None = None) -> str:
        sha256 = under or hashlib.sha256(data).hexdigest()
        self.blobs[sha256] = data
        return sha256

    async def fetch(self, sha256: str) -> AsyncIterator[bytes]:
        self.fetched.append(sha256)
        if sha256 not in self.blobs:
            raise BlobUnknown("no such blob")
        data = self.blobs[sha256]
        yield data[: len(data) // 2]
        if self.broken:
            raise BlobUnavailable("connection lost")
        yield data[len(data) // 2 :]


def member(name: str, data: bytes = b"x", mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    return info, data


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info, b""


def special(name: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = kind
    return info, b""


def tar_of(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def stager(tmp_path: Path, shelf: Shelf, cache_bytes: int = 2**30) -> Stager:
    state = tmp_path / "state"
    return Stager(state, BlobCache(state, shelf, Ticking(), cache_bytes))


def work(tmp_path: Path, uid: str = "job-1") -> Path:
    return tmp_path / "state/attempts" / uid / "work"


async def test_archive_and_files_are_laid(tmp_path: Path) -> None:
    shelf = Shelf()
    archive = shelf.put(tar_of(member("src/a.py", b"a"), member("run", b"r", 0o755)))
    config = shelf.put(b"config")
    request = StageRequest(
        "job-1", archive, (StageFile("conf/c.yaml", config), StageFile("src/a.py", config, 0o755))
    )
    staged = await stager(tmp_path, shelf).stage(request)
    assert staged == Staged(len(shelf.blobs[archive]) + 6, 0)
    there = work(tmp_path)
    assert (there / "conf/c.yaml").read_bytes() == b"config"
    # A file of the job wins over one of the archive.
    assert (there / "src/a.py").read_bytes() == b"config"
    assert (there / "src/a.py").stat().st_mode & 0o777 == 0o755
    assert (there / "run").stat().st_mode & 0o777 == 0o700


async def test_a_blob_is_fetched_once(tmp_path: Path) -> None:
    shelf = Shelf()
    blob = shelf.put(b"data")
    with_cache = stager(tmp_path, shelf)
    for n in (1, 2):
        await with_cache.stage(StageRequest(f"job-{n}", files=(StageFile("d", blob),)))
    again = await stager(tmp_path, shelf).stage(
        StageRequest("job-3", files=(StageFile("d", blob),))
    )
    assert again == Staged(0, 4)
    assert shelf.fetched == [blob]


async def test_the_cache_keeps_its_bounds_but_not_at_the_cost_of_what_is_needed(
    tmp_path: Path,
) -> None:
    shelf = Shelf()
    blobs = [shelf.put(bytes([n]) * 100) for n in range(4)]
    small = stager(tmp_path, shelf, cache_bytes=250)
    for n, blob in enumerate(blobs):
        assert isinstance(
            await small.stage(StageRequest(f"job-{n}", files=(StageFile("d", blob),))), Staged
        )
    assert sorted(os.listdir(tmp_path / "state/blobs")) == sorted(blobs[2:])


async def test_wrong_bytes_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    shelf = Shelf()
    promised = hashlib.sha256(b"good").hexdigest()
    shelf.put(b"evil", under=promised)
    refusal = await stager(tmp_path, shelf).stage(
        StageRequest("job-1", files=(StageFile("d", promised),))
    )
    assert isinstance(refusal, Refusal) and refusal.code == RefusalCode.BLOB_CORRUPT
    assert os.listdir(tmp_path / "state/blobs") == []
    assert not work(tmp_path).exists()


async def test_missing_and_broken_blobs(tmp_path: Path) -> None:
    shelf = Shelf()
    request = StageRequest("job-1", "0" * 64)
    refusal = await stager(tmp_path, shelf).stage(request)
    assert isinstance(refusal, Refusal) and refusal.code == RefusalCode.UNKNOWN_BLOB
    shelf.broken = True
    request = StageRequest("job-1", files=(StageFile("d", shelf.put(b"data")),))
    refusal = await stager(tmp_path, shelf).stage(request)
    assert isinstance(refusal, Refusal) and refusal.code == RefusalCode.STAGE_FAILED
    shelf.broken = False
    assert await stager(tmp_path, shelf).stage(request) == Staged(4, 0)


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "", "."])
async def test_files_stay_inside(tmp_path: Path, path: str) -> None:
    shelf = Shelf()
    request = StageRequest("job-1", files=(StageFile(path, shelf.put(b"data")),))
    refusal = await stager(tmp_path, shelf).stage(request)
    assert isinstance(refusal, Refusal) and refusal.code == RefusalCode.STAGE_FAILED


async def test_a_file_is_not_written_through_a_link_of_the_archive(tmp_path: Path) -> None:
    shelf = Shelf()
    archive = shelf.put(tar_of(member("real", b"old"), link("conf", "real")))
    request = StageRequest("job-1", archive, (StageFile("conf", shelf.put(b"new")),))
    assert isinstance(await stager(tmp_path, shelf).stage(request), Staged)
    assert (work(tmp_path) / "real").read_bytes() == b"old"
    assert (work(tmp_path) / "conf").read_bytes() == b"new"


async def test_staging_again_starts_from_nothing_until_the_attempt_is_taken_on(
    tmp_path: Path,
) -> None:
    shelf = Shelf()
    request = StageRequest("job-1", files=(StageFile("d", shelf.put(b"data")),))
    once = stager(tmp_path, shelf)
    await once.stage(request)
    (work(tmp_path) / "left-over").touch()
    await once.stage(request)
    assert os.listdir(work(tmp_path)) == ["d"]
    (work(tmp_path).parent / "order.json").touch()
    (work(tmp_path) / "result").touch()
    await once.stage(request)
    assert sorted(os.listdir(work(tmp_path))) == ["d", "result"]


UNSAFE: dict[str, Callable[[], bytes]] = {
    "absolute path": lambda: tar_of(member("/tmp/x")),
    "path that goes up": lambda: tar_of(member("a/../../x")),
    "link out": lambda: tar_of(link("l", "../../x")),
    "absolute link": lambda: tar_of(link("l", "/etc/passwd")),
    "hard link out": lambda: tar_of(link("l", "../../x", tarfile.LNKTYPE)),
    "absolute hard link": lambda: tar_of(link("l", "/etc/passwd", tarfile.LNKTYPE)),
    "write through a link": lambda: tar_of(link("l", "/tmp"), member("l/x")),
    "device": lambda: tar_of(special("d", tarfile.CHRTYPE)),
    "pipe": lambda: tar_of(special("p", tarfile.FIFOTYPE)),
    "cut short": lambda: tar_of(member("a", b"x" * 100_000))[:60],
    "damaged gzip": lambda: gzip.compress(b"no tar at all" * 1000),
    "no archive": lambda: b"hello",
    "links that add up to a way out": lambda: tar_of(
        member("a/b/c/f"), link("a/b/c/s", "../../.."), link("v", "a/b/c/s/..")
    ),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_archives(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(UNSAFE[name]())
    target = tmp_path / "in" / "work"
    target.mkdir(parents=True)
    with pytest.raises(UnsafeArchive):
        unpack(archive, target)
    outside = [p for p in tmp_path.rglob("*") if not p.is_relative_to(target)]
    assert sorted(p.name for p in outside) == ["archive", "in"]


def test_a_bomb_is_stopped(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(tar_of(member("big", b"\0" * 5_000_000)))
    with pytest.raises(UnsafeArchive, match="more than"):
        unpack(archive, tmp_path, max_bytes=1_000_000)


def test_safe_links_and_set_id_bits(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(
        tar_of(
            member("./a/data", b"d", 0o6755),
            link("b/up", "../a/data"),
            link("c", "a/data", tarfile.LNKTYPE),
            mode="w",
        )
    )
    target = tmp_path / "work"
    target.mkdir()
    unpack(archive, target)
    assert (target / "b/up").read_bytes() == (target / "c").read_bytes() == b"d"
    assert (target / "a/data").stat().st_mode & 0o7777 == 0o700


async def test_outputs_are_collected_with_hash_and_mode(tmp_path: Path) -> None:
    there = work(tmp_path)
    (there / "out/deep").mkdir(parents=True)
    (there / "out/deep/model.bin").write_bytes(b"model")
    (there / "out/run.sh").write_bytes(b"run")
    (there / "out/run.sh").chmod(0o755)
    (there / "notes.txt").write_bytes(b"notes")
    (there / "secret").symlink_to("/etc/passwd")
    (there / "out/elsewhere").symlink_to("/etc")
    found = await stager(tmp_path, Shelf()).collect(
        "job-1", ["out", "*.txt", "secret", "out/*/passwd"]
    )
    assert [(f.path, f.size_bytes, f.mode) for f in found] == [
        ("notes.txt", 5, 0o644),
        ("out/deep/model.bin", 5, 0o644),
        ("out/run.sh", 3, 0o755),
    ]
    assert found[1].sha256 == hashlib.sha256(b"model").hexdigest()
    with pytest.raises(ValueError, match="inside"):
        await stager(tmp_path, Shelf()).collect("job-1", ["../*"])


async def test_sweep_leaves_what_the_keeper_has(tmp_path: Path) -> None:
    shelf = Shelf()
    staged = stager(tmp_path, shelf)
    for uid in ("job-1", "job-2", "job-3"):
        await staged.stage(StageRequest(uid, files=(StageFile("d", shelf.put(b"x")),)))
    (work(tmp_path, "job-2").parent / "order.json").touch()
    assert await staged.sweep(["job-1"]) == ("job-3",)
    assert sorted(os.listdir(tmp_path / "state/attempts")) == ["job-1", "job-2"]
