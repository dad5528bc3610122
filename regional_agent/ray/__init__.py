"""A Ray cluster as the agent sees it: its Jobs API, its nodes, the programs that run in it."""
