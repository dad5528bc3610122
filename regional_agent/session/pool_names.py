"""What a pool is called that the site does not name."""

from __future__ import annotations

from collections.abc import Collection


def pool_name(what: str, taken: Collection[str]) -> str:
    """A name for nodes with `what` (an accelerator, or a queue and one) that no other pool has."""
    base = "".join(c if c.isalnum() else "-" for c in what.lower()).strip("-")
    name, n = base, 1
    while name in taken:
        n += 1
        name = f"{base}-{n}"
    return name
