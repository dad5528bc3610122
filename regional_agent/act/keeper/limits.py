"""Limits of the keeper's own process, and those its children begin with."""

from __future__ import annotations

import resource

_FILES_AT_START = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_file_limit() -> None:
    """As many open files as we may have: one per running attempt is needed."""
    hard = _FILES_AT_START[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def restore_for_children() -> None:
    """In a child: the file limit we were given (programs that use `select` break beyond it), and
    no core files unless the program asks for them."""
    resource.setrlimit(resource.RLIMIT_NOFILE, _FILES_AT_START)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
