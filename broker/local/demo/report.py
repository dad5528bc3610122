"""Everything the demonstration found, as one JSON object. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker.local.demo.findings import comparison, delays, utilisation
from broker.local.demo.story import VICTIM, Told
from broker.local.demo.workload import IMPOSSIBLE, SHOWN, Planned

VERSION = 1
SIMULATED = (
    "cards are simulated: counted, priced and handed out like real ones; jobs ran on this "
    "machine's processors"
)


def report(told: Told, planned: Sequence[Planned], took: Mapping[str, float]) -> dict[str, Any]:
    """The facts. `took`: seconds of the steps by name."""
    return {
        "version": VERSION,
        "note": SIMULATED,
        "took_s": {name: round(value, 1) for name, value in took.items()},
        "jobs": told.jobs,
        "utilisation": utilisation(told.jobs, told.clusters),
        "comparison": comparison(planned, told.jobs, told.clusters),
        "delays": delays(told.jobs, told.clusters),
        "dead_region": {
            "cluster": VICTIM,
            "unseen_s": told.unseen_s,
            "notes": told.notes_while_dead,
            "unknown_jobs": [
                {
                    "id": job["id"],
                    "name": job["name"],
                    "last_heard_phase": job["phase"],
                    "last_heard_array": job["array"],
                }
                for job in told.while_dead
            ],
            "processes_started_there_meanwhile": told.starts_while_dead,
            "adopted_attempts": told.adopted,
        },
        "once": {
            "holds": told.proof.holds,
            "starts": told.proof.starts,
            "expected": told.proof.expected,
            "twice": list(told.proof.twice),
            "missing": list(told.proof.missing),
        },
        "receipt": {"name": SHOWN, **told.receipt},
        "impossible": {"name": IMPOSSIBLE, **told.impossible},
        "clusters": told.clusters,
        "prices": told.prices,
        "latency": told.latency,
    }
