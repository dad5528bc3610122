"""The shell: takes in what happens, steps the lifecycle, persists, then acts.

Read `leader.py` first; it decides nothing: `decide` and `lifecycle` do.
"""
