"""Slurm as its clients tell of it: text and JSON in, values out. Nothing here decides."""
