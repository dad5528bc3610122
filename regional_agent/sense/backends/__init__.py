"""Backends of the collectors: NVML and what else needs a real machine."""
