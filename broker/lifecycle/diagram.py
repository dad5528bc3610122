"""The lifecycle as a Mermaid diagram, drawn from the table itself. Pure.

    python -m broker.lifecycle.diagram docs/architecture.md     rewrite the page's diagram
"""

from __future__ import annotations

import sys
from pathlib import Path

from broker.lifecycle import events as ev
from broker.lifecycle import handlers as h
from broker.lifecycle.table import ATTEMPT_TABLE, Ignore
from broker.model.jobs import AttemptPhase

BEGIN, END = "<!-- lifecycle: generated, do not edit -->", "<!-- end of lifecycle -->"

_LEADS_TO = {
    h.accepted: AttemptPhase.RESERVED,
    h.prepared: AttemptPhase.STARTING,
    h.started: AttemptPhase.RUNNING,
    h.refused: AttemptPhase.ENDED,
    h.ended: AttemptPhase.ENDED,
    h.found_missing: AttemptPhase.ENDED,
}


def attempt_diagram() -> str:
    """Every move of an attempt that the table allows; events that move nothing are left out."""
    moves: dict[tuple[AttemptPhase, AttemptPhase], list[str]] = {}
    for (phase, event), row in ATTEMPT_TABLE.items():
        if isinstance(row, Ignore) or row not in _LEADS_TO:
            continue
        target = _LEADS_TO[row]
        if target.rank > phase.rank:
            moves.setdefault((phase, target), []).append(event.__name__)
    order = {event.__name__: number for number, event in enumerate(ev.SITE_EVENTS)}
    lines = ["stateDiagram-v2", "    [*] --> placed: AttemptPlaced"]
    for (source, target), names in sorted(moves.items(), key=lambda m: (m[0][0].rank, m[0][1].rank)):
        label = ", ".join(sorted(names, key=order.__getitem__))
        lines.append(f"    {source.value} --> {target.value}: {label}")
    return "\n".join([*lines, "    ended --> [*]"])


def with_diagram(page: str) -> str:
    """The page with its diagram redrawn. Raises ValueError where the markers are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n```mermaid\n{attempt_diagram()}\n```\n{END}{after}"


def main(argv: list[str]) -> int:
    """Rewrite the diagram in the pages named."""
    for name in argv:
        path = Path(name)
        path.write_text(with_diagram(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
