"""Running a broker on this machine."""

from __future__ import annotations

import asyncio
import logging
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
    from broker.app import serve
    from broker.settings import SettingsError, read_settings
    from broker.state.keyring import KeyringError

    os.umask(0o077)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        asyncio.run(serve(read_settings(config)))
    except SettingsError as error:
        raise Failure(Exit.BAD_INPUT, str(error), "docs/broker.md lists the settings") from error
    except KeyringError as error:
        raise Failure(Exit.BAD_INPUT, str(error)) from error
    return Exit.OK
