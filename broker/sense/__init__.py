"""Reports of agents in: validated, aged, folded into the fleet view. Read `accounting.py` first."""
