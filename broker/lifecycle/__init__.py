"""Pure: `step(job, event, now) -> Step`. Events, commands, the total table, invariants, reconcile."""
