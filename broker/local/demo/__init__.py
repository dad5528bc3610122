"""The demonstration: a workload, a story with a dead region in it, and what came of it.

`workload` says what is submitted, `story` does it on a real federation, `findings` computes what is
shown from the answers of the API, `baselines` what simpler rules would have done.
"""
