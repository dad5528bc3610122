"""Backends of the acting ports."""
