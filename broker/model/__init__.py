"""Frozen values that decide and control share: fleet, problem, plan, receipt. No behaviour, no
I/O."""
