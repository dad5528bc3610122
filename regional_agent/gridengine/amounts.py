"""Amounts as Grid Engine writes them (sge_types(1))."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SIZE = re.compile(r"([0-9.]+)([kKmMgGtT]?)")
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4,
          "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}  # fmt: skip
"""sge_types(1): lower-case units are decimal, upper-case ones binary."""


def pairs(text: str) -> Iterator[tuple[str, str, str]]:
    """Of `gpu=8,h_vmem=64G` each name, `=` and value."""
    return (part.partition("=") for part in text.split(","))


def parse_amounts(text: str) -> dict[str, float]:
    """`gpu=8,h_vmem=64G`, as `complex_values` of a host has it."""
    return {name.strip(): amount(value.strip()) for name, _, value in pairs(text)}


def is_amount(text: str) -> bool:
    """Whether it begins as a number does."""
    return bool(_SIZE.match(text))


def amount(text: str) -> float:
    """A number with or without a unit; 0 for something else."""
    match = _SIZE.match(text)
    try:
        return float(match[1]) * _UNITS[match[2]] if match else 0.0
    except ValueError:
        return 0.0
