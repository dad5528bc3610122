"""What of an ended attempt has no column in the ledger: its closing receipt.

The attempt's record leaves etcd some minutes after its end; results, nodes and the price's source
are then read from here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from broker.feedback.ports import ReceiptEntry
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
    code: str = ""


def closing_receipt(attempt: Attempt) -> ReceiptEntry:
    """The receipt to write with the ledger entry of an ended attempt."""
    body = {
        "outputs": [[o.path, o.sha256, o.size_bytes, o.mode] for o in attempt.outputs],
        "nodes": list(attempt.nodes),
        "replicas": attempt.replicas,
        "price_source": attempt.price_source,
        "price_as_of_ms": attempt.price_as_of_ms,
        "expected_start_delay_ms": attempt.expected_start_delay_ms,
        "code": attempt.outcome.code if attempt.outcome else "",
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
        code=body["code"],
    )
