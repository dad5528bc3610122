"""The lifecycle as a Mermaid diagram, drawn from the table itself. Pure.

`python docs/draw_lifecycle.py` puts it into the architecture page.
"""

from __future__ import annotations

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
    for source, target in sorted(moves, key=lambda move: (move[0].rank, move[1].rank)):
        names = moves[source, target]
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
