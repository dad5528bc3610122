"""`python -m broker` is the `tradewind` command."""

from __future__ import annotations

from pkgutil import resolve_name

if __name__ == "__main__":
    # By name, as the installed entry point does it: this module and the command line stand side
    # by side on the top layer.
    resolve_name("broker.cli:main")()
