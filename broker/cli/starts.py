"""Starts as they were expected and as they were, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cli.formatting import NONE, mapping, mappings, milliseconds, number, size, text


def start_told(attempt: Mapping[str, Any]) -> str:
    """`start expected in 300 ms, by 900 ms in 9 of 10, took 420 ms: handshake 12 ms, ...`; empty
    where nothing was expected and nothing measured."""
    usual_s, late_s = (
        number(attempt.get(key)) for key in ("expected_start_delay_s", "expected_start_p90_s")
    )
    measured = mapping(attempt.get("measured_start"))
    parts = []
    if usual_s:
        line = f"start expected in {milliseconds(usual_s * 1000)}"
        parts.append(f"{line}, by {milliseconds(late_s * 1000)} in 9 of 10" if late_s else line)
    elif usual_s is not None:
        parts.append("nothing was known of starts there yet")
    if measured:
        parts.append(f"took {_measured(measured)}")
    return ", ".join(parts)


def explained_lines(explanation: Mapping[str, Any]) -> list[str]:
    """A line for every start, and one for what is being prepared."""
    lines = []
    for start in mappings(explanation.get("starts")):
        told = start_told(start)
        if told:
            place = f"{text(start.get('attempt'))} in {text(start.get('cluster'))}"
            lines.append(f"{place}: {told}.")
    prepared = text(explanation.get("prepared_in"))
    if prepared != NONE:
        lines.append(f"Its files are being brought to {prepared}, where it is expected to start.")
    return lines


def _measured(measured: Mapping[str, Any]) -> str:
    fetched, cached = number(measured.get("fetched_bytes")), number(measured.get("cached_bytes"))
    moved = [f"{size(fetched)} fetched"] if fetched else []
    moved += [f"{size(cached)} cached"] if cached else []
    files = f" ({', '.join(moved)})" if moved else ""
    whole, handshake, prepare, launch = (
        milliseconds(measured.get(f"{part}_ms"))
        for part in ("took", "handshake", "prepare", "launch")
    )
    return f"{whole}: handshake {handshake}, prepare {prepare}{files}, launch {launch}"
