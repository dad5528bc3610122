"""The agent of one cluster. It dials out, reports, and runs what carries a valid ticket."""
