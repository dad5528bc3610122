"""Pure: `step(job, event, terms, now_ms) -> Step`. Events, the total table, invariants, reconcile.

Read `table.py` first: it says what every event means in every phase.
"""
