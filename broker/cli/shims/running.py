"""Running one of the old commands: its arguments, the broker, and errors in its own words."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from broker.cli.exits import Failure

_MODULES = "broker.cli.shims"


class Arguments(argparse.ArgumentParser):
    """Options as the old commands take them: unique beginnings do, and errors end with 1."""

    def __init__(self, program: str) -> None:
        super().__init__(prog=program, add_help=False, allow_abbrev=True)
        self.add_argument("--help", action="help", help="show this")

    def error(self, message: str) -> NoReturn:
        """Say it as the old command would."""
        sys.stderr.write(f"{self.prog}: error: {message}\n")
        raise SystemExit(1)

    def flag(self, *names: str) -> None:
        """An option without a value."""
        self.add_argument(*names, action="store_true")

    def text(self, *names: str) -> None:
        """An option with a value."""
        self.add_argument(*names, default="")


def run(program: str, command: Callable[[Sequence[str]], int]) -> int:
    """Run `command` with our own arguments; its exit code. Errors are told as `program` would."""
    from broker.client.errors import ClientError, Refused

    try:
        code = command(sys.argv[1:])
        sys.stdout.flush()
        return code
    except Failure as failure:
        lines = [*failure.text.splitlines(), *filter(None, [failure.remedy])]
    except Refused as refused:
        faults = [str(fault) for fault in refused.problem.errors]
        lines = [refused.problem.line, *(f for f in faults if f != refused.problem.line)]
    except ClientError as error:
        lines = [*error.text.splitlines(), *filter(None, [error.remedy])]
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    for line in lines:
        sys.stderr.write(f"{program}: error: {line.strip()}\n")
    return 1


def _command(program: str) -> None:
    module = import_module(f"{_MODULES}.{program}")
    sys.exit(run(program, module.main))


def sbatch() -> None:
    """The entry point of `tradewind-sbatch`."""
    _command("sbatch")


def squeue() -> None:
    """The entry point of `tradewind-squeue`."""
    _command("squeue")


def scancel() -> None:
    """The entry point of `tradewind-scancel`."""
    _command("scancel")


def sinfo() -> None:
    """The entry point of `tradewind-sinfo`."""
    _command("sinfo")


def sacct() -> None:
    """The entry point of `tradewind-sacct`."""
    _command("sacct")


def qsub() -> None:
    """The entry point of `tradewind-qsub`."""
    _command("qsub")


def qstat() -> None:
    """The entry point of `tradewind-qstat`."""
    _command("qstat")


def qdel() -> None:
    """The entry point of `tradewind-qdel`."""
    _command("qdel")
