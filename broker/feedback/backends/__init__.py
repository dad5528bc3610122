"""Backends of the feedback ports: SQL ledger, blob and log directories."""
