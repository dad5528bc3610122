"""Images of containers on a plain host: podman knows and fetches them; each is unpacked once.

What a job runs in is a plain directory of the agent's own, read-only to the job, in the sandbox
and under the keeper that run every other job: see `docs/adr/0017-containers.md`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.environment import Clock
from federation.refusals import Refusal, RefusalCode
from regional_agent.act.isolation import SHARED, Wanted, try_sandbox
from regional_agent.act.keeper.layout import AttemptDir, attempts_dir
from regional_agent.act.keeper.sandbox import IMAGE_FILES, IMAGE_MOUNTS, Sandbox
from regional_agent.clients import ClientSilent, run_probe

KNOWN_S = 60.0
"""For so long a name is taken to mean the image it meant."""
KEPT_UNUSED_S = 7 * 24 * 3600.0
ARCHIVES = ("docker-archive:", "oci-archive:")
REGISTRY = "docker://"
SAID_CHARS_MAX = 400


@dataclass(frozen=True, slots=True)
class ImageWishes:
    """As `agent.yaml` says. `podman`: its command line, storage options included; `pull` False:
    only images that are there; `archives`: directories of the site whose archives jobs may name.
    `probe_s`: how long podman may take to say that it works."""

    podman: tuple[str, ...] = ("podman",)
    pull: bool = True
    archives: tuple[str, ...] = ()
    probe_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An image ready to run: its files, and the environment it sets."""

    root: Path
    env: tuple[tuple[str, str], ...]


class _NotHad(Exception):
    """Why an image cannot be had; one line."""


class Images:
    """The images of one agent, unpacked below its state directory. Made by `find_images`."""

    def __init__(
        self, state: Path, wishes: ImageWishes, sandbox: Sandbox, clock: Clock
    ) -> None:
        """`sandbox`: what of the site a container shows beside the image."""
        self.sandbox = sandbox
        self._state = state
        self._wishes = wishes
        self._clock = clock
        self._known: dict[str, tuple[float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def have(self, uid: str, image: str) -> Unpacked | Refusal:
        """The image of an attempt, fetched and unpacked where it is not there yet. Repeating it
        does nothing. Refuses stage_failed, unsupported and disk_full."""
        try:
            async with self._locks[image]:  # one that is fetched for long holds up no other
                found = await self._id_of(uid, image)
            async with self._locks[found]:
                return await self._unpacked(found)
        except _NotHad as problem:
            return Refusal(RefusalCode.STAGE_FAILED, uid, available=f"image {image}: {problem}")
        except OSError as problem:
            return Refusal(RefusalCode.DISK_FULL, uid, available=f"image {image}: {problem}")

    # Names --------------------------------------------------------------------------------------

    async def _id_of(self, uid: str, image: str) -> str:
        """The id of an image by its name or archive."""
        name = image.removeprefix(REGISTRY)
        key = name
        if name.startswith(ARCHIVES):
            name = self._archive(uid, name)
            seen = os.stat(name.partition(":")[2])
            key = f"{name} {seen.st_ino} {seen.st_size} {seen.st_mtime_ns}"
        elif ":/" in name or name.startswith("-"):
            raise _NotHad("not the name of an image; write docker://NAME or docker-archive:FILE")
        at_s, known = self._known.get(key, (0.0, ""))
        if known and self._clock.monotonic_s() - at_s < KNOWN_S:
            return known
        known = await self._fetched(name)
        self._known[key] = self._clock.monotonic_s(), known
        return known

    async def _fetched(self, name: str) -> str:
        if name.startswith(ARCHIVES):
            said = await self._podman("pull", "--quiet", name)
            return said.split()[-1].removeprefix("sha256:")
        with contextlib.suppress(_NotHad):
            return (await self._podman("image", "inspect", "--format", "{{.Id}}", name)).strip()
        if not self._wishes.pull:
            raise _NotHad("it is not here, and this site fetches none (containers.pull: no)")
        said = await self._podman("pull", "--quiet", name)
        return said.split()[-1].removeprefix("sha256:")

    def _archive(self, uid: str, name: str) -> str:
        """Of the job's own files, or of a directory the site opened: no other file may be read."""
        kind, _, said = name.partition(":")
        work = AttemptDir(self._state, uid).work
        path = (Path(said) if os.path.isabs(said) else work / said).resolve()
        places = (work, *map(Path, self._wishes.archives))
        if not any(path.is_relative_to(place.resolve()) for place in places):
            raise _NotHad(f"{said} lies neither in the job's files nor in containers.archives")
        if not path.is_file():
            raise _NotHad(f"there is no file {said}")
        return f"{kind}:{path}"

    # Unpacking ----------------------------------------------------------------------------------

    async def _unpacked(self, image_id: str) -> Unpacked:
        place = images_dir(self._state) / image_id
        if not (place / "config.json").exists():
            await self._unpack(image_id, place)
        now_s = self._clock.now_ms() / 1000
        os.utime(place, (now_s, now_s))
        await asyncio.to_thread(self._make_mounts, place / "root")
        config = json.loads((place / "config.json").read_bytes())
        said = (entry.partition("=") for entry in config.get("Env") or ())
        return Unpacked(place / "root", tuple((name, value) for name, _, value in said))

    async def _unpack(self, image_id: str, place: Path) -> None:
        """Beside its place, and then there whole."""
        fresh = place.with_name(f"{image_id}.new")
        await asyncio.to_thread(_remove, fresh)
        (fresh / "root").mkdir(mode=0o700, parents=True)
        said = await self._podman("image", "inspect", "--format", "{{json .Config}}", image_id)
        container = (await self._podman("create", image_id, "/bin/true")).split()[-1]
        try:
            await self._export(container, fresh / "root")
        finally:
            with contextlib.suppress(_NotHad):
                await self._podman("rm", "--force", container)
        await asyncio.to_thread(_settle_in, fresh / "root")
        (fresh / "config.json").write_text(said)
        fresh.rename(place)
        await asyncio.to_thread(self._sweep, image_id)

    async def _export(self, container: str, root: Path) -> None:
        read, write = os.pipe()
        # As the agent's user: a job without privileges could not read another's files.
        unpack = ("tar", "-x", "-C", str(root), "--no-same-owner", "--exclude=dev/*")
        tar = await asyncio.create_subprocess_exec(
            *unpack, stdin=read, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        os.close(read)
        try:
            await self._podman("export", container, stdout=write)
        finally:
            os.close(write)
            _, said = await tar.communicate()
        if tar.returncode:
            raise _NotHad(f"cannot be unpacked: {_one_line(said)}")

    def _make_mounts(self, root: Path) -> None:
        """Where a container has something else than the image, something has to be."""
        shown = (*self.sandbox.readable, *self.sandbox.writable)
        for path in (*IMAGE_MOUNTS, str(self._state), *(p for p in shown if os.path.isdir(p))):
            _make_mount(root, path, file=False)
        for path in (*IMAGE_FILES, *(p for p in shown if os.path.isfile(p))):
            _make_mount(root, path, file=True)

    def _sweep(self, keep: str) -> None:
        """What no attempt names and none used for long goes."""
        used = set(_named_by_attempts(self._state)) | {keep}
        limit = self._clock.now_ms() / 1000 - KEPT_UNUSED_S
        for place in images_dir(self._state).iterdir():
            if place.name not in used and place.stat().st_mtime < limit:
                _remove(place)

    # Podman -------------------------------------------------------------------------------------

    async def _podman(self, *words: str, stdout: int = subprocess.PIPE) -> str:
        process = await asyncio.create_subprocess_exec(
            *self._wishes.podman, *words, stdin=subprocess.DEVNULL, stdout=stdout,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            out, said = await process.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        if process.returncode:
            raise _NotHad(f"podman: {_one_line(said)}")
        return (out or b"").decode(errors="replace")


def find_images(
    wishes: ImageWishes | None, wanted: Wanted, state: Path, clock: Clock
) -> Images | str:
    """The images of this host, or why jobs get none; `wishes` None: none are wanted."""
    reason = images_missing(wishes, state)
    if reason or wishes is None:
        return reason
    open_network = wanted.network or wanted.mode == SHARED
    sandbox = Sandbox(open_network, wanted.writable, wanted.readable)
    return Images(state, wishes, sandbox, clock)


def images_missing(wishes: ImageWishes | None, state: Path) -> str:
    """Why jobs get no images here, by a trial; empty if they do."""
    if wishes is None:
        return "not asked for (containers: {enabled: no})"
    return try_sandbox(Sandbox(), state) or _try_podman(wishes)


def images_dir(state: Path) -> Path:
    """Where unpacked images lie, a directory each, named by their ids."""
    return state / "images"


def _try_podman(wishes: ImageWishes) -> str:
    words = (*wishes.podman, "info", "--format", "{{.Store.GraphDriverName}}")
    if shutil.which(words[0]) is None:
        return f"{words[0]} is not installed (package podman)"
    try:
        answer = run_probe(words, wishes.probe_s)
    except ClientSilent as problem:
        return f"podman: {problem}"
    return f"podman: {answer.said}" if answer.code else ""


def _settle_in(root: Path) -> None:
    """Its files are ours to read and to remove, and whoever runs in it has a name."""
    for top, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = os.path.join(top, name)
            if not os.path.islink(path):
                mode = os.stat(path).st_mode
                os.chmod(path, mode | (0o700 if os.path.isdir(path) else 0o400))
    passwd, user = root / "etc/passwd", os.getuid()
    if passwd.is_file() and not passwd.is_symlink() and not (root / "etc").is_symlink():
        lines = passwd.read_text(errors="surrogateescape").splitlines()
        if not any(line.split(":")[2:3] == [str(user)] for line in lines):
            lines.append(f"tradewind:x:{user}:{os.getgid()}::/:/bin/sh")
            text = "\n".join(lines) + "\n"
            passwd.write_text(text, errors="surrogateescape")


def _make_mount(root: Path, path: str, *, file: bool) -> None:
    """A directory or file of this path inside the tree. A link on the way is replaced: it might
    lead out of the tree. Raises _NotHad where a file stands in the way."""
    here = root
    parts = Path(path).parts[1:]
    for nth, part in enumerate(parts, 1):
        here = here / part
        if here.is_symlink():
            here.unlink()
        if file and nth == len(parts):
            here.touch()
        elif here.exists() and not here.is_dir():
            raise _NotHad(f"its file {path} is where the site has a directory")
        else:
            here.mkdir(exist_ok=True)


def _named_by_attempts(state: Path) -> Iterator[str]:
    for order in attempts_dir(state).glob("*/order.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            body: Any = json.loads(order.read_bytes())
            yield Path(body["sandbox"]["root"]).parent.name


def _remove(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)


def _one_line(said: bytes) -> str:
    return " ".join(said.decode(errors="replace").split())[-SAID_CHARS_MAX:]
