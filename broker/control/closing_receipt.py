"""What of an ended attempt has no column in the ledger: its closing receipt.

The attempt's record leaves etcd some minutes after its end; results, nodes and the price's source
are then read from here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from broker.feedback.ports import AttemptEntry, ReceiptEntry
from broker.model.jobs import Attempt, Output

CLOSING = "closing"
"""Stands in the receipt's `cycle`: an attempt closes once."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The rest of an ended attempt. Times are UTC epoch ms, 0 = not known."""

    outputs: tuple[Output, ...] = ()
    nodes: tuple[str, ...] = ()
    replicas: int = 1
    price_source: str = ""
    price_as_of_ms: int = 0
    expected_start_delay_ms: int = 0
    expected_start_p90_ms: int = 0
    code: str = ""
    superseded_ms: int = 0


def measured_start(attempt: Attempt | AttemptEntry) -> dict[str, int] | None:
    """How long its start really took, in all and by part in ms, and what was fetched for it;
    None for one that never started. `launch_ms` is all that is neither of the others."""
    started_ms, reserved_ms = attempt.started_ms or 0, attempt.reserved_ms or attempt.placed_ms
    if not started_ms:
        return None
    handshake_ms = max(reserved_ms - attempt.placed_ms, 0)
    prepare_ms = attempt.prepare_ms or 0
    took_ms = max(started_ms - attempt.placed_ms, 0)
    return {
        "took_ms": took_ms,
        "handshake_ms": handshake_ms,
        "prepare_ms": prepare_ms,
        "launch_ms": max(took_ms - handshake_ms - prepare_ms, 0),
        "fetched_bytes": attempt.fetched_bytes or 0,
        "cached_bytes": attempt.cached_bytes or 0,
    }


def closing_receipt(attempt: Attempt) -> ReceiptEntry:
    """The receipt to write with the ledger entry of an ended attempt."""
    body = {
        "outputs": [[o.path, o.sha256, o.size_bytes, o.mode] for o in attempt.outputs],
        "nodes": list(attempt.nodes),
        "replicas": attempt.replicas,
        "price_source": attempt.price_source,
        "price_as_of_ms": attempt.price_as_of_ms,
        "expected_start_delay_ms": attempt.expected_start_delay_ms,
        "expected_start_p90_ms": attempt.expected_start_p90_ms,
        "measured_start": measured_start(attempt),
        "code": attempt.outcome.code if attempt.outcome else "",
        "superseded_ms": attempt.superseded_ms,
    }
    return ReceiptEntry(
        job=attempt.job,
        cycle=CLOSING,
        created_ms=attempt.ended_ms,
        body_json=json.dumps(body, separators=(",", ":")).encode(),
        attempt=attempt.uid,
    )


def read_closing(receipt: ReceiptEntry) -> Closing | None:
    """What a closing receipt holds; None for a receipt of a decision."""
    if receipt.cycle != CLOSING:
        return None
    body = json.loads(receipt.body_json)
    return Closing(
        outputs=tuple(Output(*row) for row in body["outputs"]),
        nodes=tuple(body["nodes"]),
        replicas=body["replicas"],
        price_source=body["price_source"],
        price_as_of_ms=body["price_as_of_ms"],
        expected_start_delay_ms=body["expected_start_delay_ms"],
        expected_start_p90_ms=body.get("expected_start_p90_ms", 0),
        code=body["code"],
        superseded_ms=body.get("superseded_ms", 0),
    )
