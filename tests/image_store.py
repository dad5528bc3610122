"""Container images of the tests' own, without any registry: podman over a scratch directory, and an
image made of Debian's static busybox."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from regional_agent.act.images import ImageWishes
from tests.keeper_site import isolation_is_possible

BUSYBOX = Path("/usr/bin/busybox")
NAME = "tradewind-test/busybox:1"
PASSWD = "root:x:0:0:root:/root:/bin/sh\n"


def image_store_missing() -> str:
    """What containers lack here; empty for nothing."""
    if shutil.which("podman") is None:
        return "containers: podman is not installed"
    if not BUSYBOX.exists():
        return "containers: busybox-static is not installed"
    why = isolation_is_possible()
    return f"containers: {why}" if why else ""


class ImageStore:
    """Podman's storage below `directory`; `image` is the name of an image in it."""

    image = f"docker://{NAME}"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.unpacked = directory / "unpacked"
        # vfs: an overlay needs more of a kernel and a file system than tests may ask for.
        self.podman = (
            "podman", "--root", str(directory / "root"), "--runroot", str(directory / "run"),
            "--storage-driver", "vfs",
        )  # fmt: skip
        self.wishes = ImageWishes(self.podman, pull=False, archives=(str(directory / "shared"),))
        self.imported(NAME, busybox_tree(), "ENV COLOUR=green", "ENV PATH=/opt/own:/bin:/usr/bin")

    def imported(self, name: str, tree: bytes, *changes: str) -> str:
        """An image of these files; returns its id."""
        words = [word for change in changes for word in ("--change", change)]
        return self.run("import", *words, "-", name, given=tree).split()[-1].removeprefix("sha256:")

    def run(self, *words: str, given: bytes = b"") -> str:
        done = subprocess.run(
            [*self.podman, *words], input=given, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()


def busybox_tree(**files: bytes | str) -> bytes:
    """A tar of a small system; of `files`, named with `__` for `/`, text is where a link leads."""
    applets = subprocess.run([str(BUSYBOX), "--list"], capture_output=True, text=True, check=True)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.add(BUSYBOX, "bin/busybox")
        for applet in applets.stdout.split():
            if applet != "busybox":
                _link(tar, f"bin/{applet}", "busybox")
        _file(tar, "etc/passwd", PASSWD.encode())
        _file(tar, "etc/made-of", b"busybox\n")
        for name, content in files.items():
            path = name.replace("__", "/")
            if isinstance(content, str):
                _link(tar, path, content)
            else:
                _file(tar, path, content)
    return made.getvalue()


def _file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.uid = len(content), 0o600, 4321
    tar.addfile(info, io.BytesIO(content))


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    tar.addfile(info)
