"""A sandbox around one process of a task: bubblewrap, or nothing.

The job's process and all it starts live in process, IPC and mount namespaces of their own: the
system is read-only, /tmp and /run are private, what is named hidden is empty, and of the agent's
state there is only the attempt's own working directory. No privilege is left and none can be got.

bubblewrap stays outside as the leader of the session; inside, a shell is process 1, waits for the
job and takes everything else with it when that ends. So each end and what it used come up to the
keeper. A signal to stop must reach the job and not the leader, whose end would be taken for the
job's.
"""

from __future__ import annotations

import functools
import glob
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regional_agent.act.keeper import processes

PROGRAM = "bwrap"
NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try")
PRIVATE = ("/tmp", "/var/tmp", "/run")
"""Empty inside: sockets of services lie in /run, everybody's files in the others."""
RESOLVER = "/run/systemd/resolve"
IMAGE_MOUNTS = ("/proc", "/dev", "/sys", "/tmp", "/var/tmp", "/run")  # noqa: S108
IMAGE_FILES = ("/etc/resolv.conf", "/etc/hosts")
"""What a container does not have from its image."""
SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEVICES = (
    "/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/davinci*", "/dev/hisi_hdc", "/dev/infiniband",
)  # fmt: skip
_SCRIPT = """
_tw_stop=
trap _tw_stop=1 TERM
"$0" "$@"
_tw_code=$?
while [ "$_tw_stop" ] && set -- /proc/[0-9]* && [ $# -gt 1 ]; do sleep 0.05; done
exit $_tw_code
"""
STARTER = ("/bin/sh", "-c", _SCRIPT)
"""Process 1. It must not become the program itself, which the kernel would keep signals from. When
all were told to stop it leaves them their grace: a program may save what its shell does not."""
SIGNAL_BASE = 128
SIGNALS_MAX = 64


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What of the machine a job may see. `network`: that of the host, else loopback alone.
    `readable` are paths that lie in what is private or hidden and are shown all the same.
    `root`: the files of an image, in the place of the machine's; then nothing is hidden, for
    nothing else is there."""

    network: bool = False
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    root: str = ""

    def to_json(self) -> dict[str, Any]:
        """As an order carries it."""
        return {
            "network": self.network,
            "writable": list(self.writable),
            "readable": list(self.readable),
            "hidden": list(self.hidden),
            "root": self.root,
        }


def sandbox_of(body: dict[str, Any] | None) -> Sandbox | None:
    """From an order; None for none. Raises KeyError or TypeError."""
    if body is None:
        return None
    writable, readable, hidden = (
        tuple(map(str, body[name])) for name in ("writable", "readable", "hidden")
    )
    root = str(body.get("root", ""))
    return Sandbox(bool(body["network"]), writable, readable, hidden, root)


@dataclass(frozen=True, slots=True)
class Shown:
    """What of the agent's state a process needs: all of it is hidden else."""

    state: Path
    work: Path
    script: Path


def wrapped(argv: Iterable[str], sandbox: Sandbox, shown: Shown) -> tuple[str, ...]:
    """The command line that runs `argv` in the sandbox."""
    starter = () if _without_shell(sandbox.root) else ("--as-pid-1",)
    words = [_program(), *NAMESPACES, *starter]
    if not sandbox.network:
        words.append("--unshare-net")
    words += ["--cap-drop", "ALL", "--ro-bind", sandbox.root or "/", "/"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for device in _devices():
        words += ["--dev-bind-try", device, device]
    words += _of_an_image(sandbox) if sandbox.root else _of_the_machine(sandbox)
    words += ["--tmpfs", str(shown.state)]
    for path in sandbox.readable:
        words += ["--ro-bind-try", path, path]
    for path in sandbox.writable:
        words += ["--bind-try", path, path]
    words += ["--bind", str(shown.work), str(shown.work)]
    words += ["--ro-bind-try", str(shown.script), str(shown.script)]
    words += ["--chdir", str(shown.work), "--", *(STARTER if starter else ())]
    return (*words, *argv)


def _of_the_machine(sandbox: Sandbox) -> list[str]:
    words = []
    for place in PRIVATE:
        if os.path.isdir(place) and not os.path.islink(place):
            words += ["--tmpfs", place]
    if sandbox.network and os.path.isdir(RESOLVER):
        words += ["--ro-bind", RESOLVER, RESOLVER]
    for path in sandbox.hidden:
        words += _hidden(path)
    return words


def _of_an_image(sandbox: Sandbox) -> list[str]:
    words = ["--ro-bind", "/sys", "/sys"]
    for place in PRIVATE:
        words += ["--tmpfs", place]
    for file in IMAGE_FILES if sandbox.network else ():
        words += ["--ro-bind-try", file, file]
    return words


def _without_shell(root: str) -> bool:
    """Then bubblewrap itself is process 1, and what the program leaves behind has no grace."""
    return bool(root) and not os.path.lexists(os.path.join(root, "bin/sh"))


@functools.cache
def _program() -> str:
    """By its whole name: PATH is the job's, and maybe that of an image."""
    return shutil.which(PROGRAM, path=SEARCHED) or PROGRAM


def _devices() -> Iterator[str]:
    for pattern in DEVICES:
        yield from sorted(glob.glob(pattern))


def _hidden(path: str) -> list[str]:
    if os.path.isdir(path):
        return ["--tmpfs", path]
    return ["--ro-bind", os.devnull, path] if os.path.exists(path) else []


def signal_inside(leader: int, number: int) -> None:
    """Signal what runs inside: the whole group of the leader but the leader itself."""
    for pid in processes.group_members(leader):
        if pid != leader:
            processes.send(pid, number)


def end_of(code: int) -> int:
    """The signal an exit code of the leader stands for, 0 for none: bubblewrap, like a shell,
    tells of a process that a signal ended by 128 and its number."""
    number = code - SIGNAL_BASE
    return number if 0 < number <= SIGNALS_MAX else 0
