"""Running a broker on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from broker.cli.exits import Exit, Failure
from broker.cli.options import group

app = group("Run a broker.")


@app.callback()
def _broker() -> None:
    """A single sub-command would otherwise be taken for the command itself."""


@app.command()
def run(
    config: Annotated[
        Path | None,
        typer.Option(help="Settings (YAML); TRADEWIND_BROKER_<NAME> overrides single ones."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say more in the log.")] = False,
) -> int:
    """Serve the API and sessions until SIGTERM; the log goes to stderr."""
    import uvloop

    from broker.app import serve
    from broker.settings import SettingsError, read_settings
    from broker.state.keyring import KeyringError
    from federation.log_lines import configure

    os.umask(0o077)
    try:
        settings = read_settings(config)
        configure(settings.log_format, sys.stderr, verbose=verbose)
        uvloop.run(serve(settings))
    except SettingsError as error:
        raise Failure(Exit.BAD_INPUT, str(error), "docs/broker.md lists the settings") from error
    except KeyringError as error:
        raise Failure(Exit.BAD_INPUT, str(error)) from error
    return Exit.OK
