"""Forking one process of a task: a child that waits for leave before it becomes the program."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from regional_agent.act.keeper import limits
from regional_agent.act.keeper.attempt import Attempt
from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.keeper.orders import Order, Seat
from regional_agent.act.keeper.sandbox import Shown, wrapped

NOT_FOUND_CODE = 127
NOT_RUNNABLE_CODE = 126
NEVER_RELEASED_CODE = 125
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Asks the kernel to kill a job before the keeper or the agent when memory runs out.
_OOM_SCORE_ADJ = b"500"
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Program:
    """All a child needs, made before the fork."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    log: Path


@dataclass(frozen=True, slots=True)
class Spawned:
    """A child that waits. Writing a byte to `go_fd` lets it run, closing it makes it exit."""

    pid: int
    go_fd: int


def program(attempt: Attempt, place: AttemptDir, task: int, rank: int, port: int) -> Program:
    """What rank `rank` of `task` runs, and in what surroundings."""
    order = attempt.order
    label = order.task_label(task)
    lane = attempt.live[task].lane
    argv = _argv(order, place)
    if order.sandbox is not None:
        shown = Shown(place.state, place.work, place.script)
        argv = wrapped(argv, order.sandbox, shown)
    return Program(
        argv=argv,
        env=_environment(order, place, attempt.seats(lane), (task, rank, port)),
        cwd=place.work,
        log=place.log(label, rank),
    )


def _argv(order: Order, place: AttemptDir) -> tuple[str, ...]:
    if not order.run:
        return order.argv
    script = str(place.script)
    return (script,) if order.run.startswith("#!") else ("/bin/sh", script)


def _environment(
    order: Order, place: AttemptDir, seats: tuple[Seat, ...], which: tuple[int, int, int]
) -> dict[str, str]:
    task, rank, port = which
    env = {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8", "TZ": "UTC"} | dict(order.env)
    env["HOME"] = env["PWD"] = str(place.work)
    env["TRADEWIND_JOB"] = order.job
    env["TRADEWIND_ATTEMPT"] = order.uid
    env["TRADEWIND_TASK"] = "" if order.tasks is None else str(task)
    env["TRADEWIND_RANK"] = env["RANK"] = str(rank)
    env["TRADEWIND_WORLD_SIZE"] = env["WORLD_SIZE"] = str(order.replicas)
    node = seats[rank].node if seats else 0
    env["LOCAL_RANK"] = str(sum(seat.node == node for seat in seats[:rank]) if seats else rank)
    if port:
        env["TRADEWIND_HEAD_ADDRESS"] = f"127.0.0.1:{port}"
        env["MASTER_ADDR"] = "127.0.0.1"
        env["MASTER_PORT"] = str(port)
    if seats:
        _show_cards(env, order.accelerator, seats[rank])
    return env


def _show_cards(env: dict[str, str], accelerator: str, seat: Seat) -> None:
    cards = ",".join(map(str, seat.accelerators))
    real = accelerator not in ("", "CPU")
    env["CUDA_VISIBLE_DEVICES"] = cards if real else ""
    env["TRADEWIND_ACCELERATORS"] = f"{accelerator}:{cards}" if real and cards else ""
    env["TRADEWIND_POOL"] = seat.pool
    env["TRADEWIND_NODE"] = str(seat.node)


def free_port() -> int:
    """A TCP port of loopback that is free now, for the ranks of a gang to meet at."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawn(what: Program) -> Spawned:
    """Fork. The child is its own session and group and runs nothing until it is released.

    Raises OSError if the machine has no room for another process.
    """
    go_read, go_write = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(go_read)
        os.close(go_write)
        raise
    if pid == 0:
        os.close(go_write)
        _become(what, go_read)
    os.close(go_read)
    return Spawned(pid, go_write)


def release(child: Spawned) -> None:
    """Let the child become its program."""
    try:
        os.write(child.go_fd, b"g")
    except BrokenPipeError:
        pass  # It is dead already; its exit status will tell.
    finally:
        os.close(child.go_fd)


def _become(what: Program, go_read: int) -> NoReturn:
    """In the child: never returns, never raises, never runs the keeper's code again."""
    code = NOT_RUNNABLE_CODE
    try:
        os.setsid()
        _take_streams(what)
        if os.read(go_read, 1) != b"g":
            os._exit(NEVER_RELEASED_CODE)
        _drop_inheritance()
        os.chdir(what.cwd)
        os.execvpe(what.argv[0], what.argv, what.env)
    except FileNotFoundError as error:
        code = NOT_FOUND_CODE
        _complain(what, error)
    except (OSError, ValueError) as error:
        _complain(what, error)
    finally:
        os._exit(code)


def _take_streams(what: Program) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    # Both streams into one file, as on a terminal: only so can their order be told later.
    log = os.open(what.log, flags, 0o600)
    for number, fd in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(fd, number, inheritable=True)


def _drop_inheritance() -> None:
    # Python opens everything close-on-exec, so no descriptor of the keeper gets through.
    os.umask(0o077)
    limits.restore_for_children()
    for number in _RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(fd, _OOM_SCORE_ADJ)
        os.close(fd)
    except OSError:
        pass  # A wish only: some containers forbid it.


def _complain(what: Program, error: Exception) -> None:
    os.write(2, f"tradewind: cannot run {what.argv[0]!r}: {error}\n".encode())
