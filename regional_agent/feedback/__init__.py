"""Usage sampling and log shipping."""
