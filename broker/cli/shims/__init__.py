"""The commands of Slurm and Grid Engine, answered by the federation.

They take the usual flags, print the usual columns and know jobs by integers.
"""
