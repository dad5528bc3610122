"""Figures over several runs: least, middle, most, and the ratio to a floor of the run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, middle and most of some values."""

    least: float
    middle: float
    most: float

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """Of at least one value."""
        known = sorted(values)
        return Spread(known[0], median(known), known[-1])

    def document(self) -> dict[str, float]:
        """As JSON, to four digits."""
        return {
            "min": _short(self.least),
            "median": _short(self.middle),
            "max": _short(self.most),
        }


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should reach: `of_floor` judges its ratio to the floor, not the figure."""

    value: float
    at_most: bool = False
    of_floor: bool = False

    def text(self) -> str:
        """For the table."""
        value = f"{self.value:.0%} of the floor" if self.of_floor else f"{self.value:,g}"
        return f"{'<=' if self.at_most else '>='} {value}"


@dataclass(slots=True)
class Figure:
    """One thing measured in each run, with the floor of the same run where there is one."""

    name: str
    unit: str
    target: Target | None = None
    floor_name: str = ""
    values: list[float] = field(default_factory=list)
    floors: list[float] = field(default_factory=list)

    def add(self, value: float, floor: float | None = None) -> None:
        """What one run found."""
        self.values.append(value)
        if floor is not None:
            self.floors.append(floor)

    @property
    def ratio(self) -> Spread | None:
        """To the floor, run by run."""
        if not self.floors or not all(self.floors):
            return None
        return Spread.of(v / f for v, f in zip(self.values, self.floors, strict=True))

    @property
    def met(self) -> bool | None:
        """Whether the middle run reaches the target; None without one."""
        if self.target is None or not self.values:
            return None
        found = self.ratio if self.target.of_floor else Spread.of(self.values)
        if found is None:
            return None
        if self.target.at_most:
            return found.middle <= self.target.value
        return found.middle >= self.target.value

    def document(self) -> dict[str, Any]:
        """As JSON."""
        found: dict[str, Any] = {"name": self.name, "unit": self.unit, "runs": len(self.values)}
        if self.values:
            found |= Spread.of(self.values).document()
        if self.floors:
            found["floor"] = {"name": self.floor_name} | Spread.of(self.floors).document()
        if (ratio := self.ratio) is not None:
            found["ratio_to_floor"] = ratio.document()
        if self.target is not None:
            found["target"] = self.target.text()
            found["met"] = self.met
        return found

    def row(self) -> list[str]:
        """Name, least, middle, most, unit, floor, ratio, target, met: as text."""
        spread = Spread.of(self.values)
        floor = _number(Spread.of(self.floors).middle) if self.floors else "-"
        ratio = f"{self.ratio.middle:.2f}" if self.ratio else "-"
        met = {None: "-", True: "yes", False: "no"}[self.met]
        target = self.target.text() if self.target else "-"
        numbers = [_number(v) for v in (spread.least, spread.middle, spread.most)]
        return [self.name, *numbers, self.unit, floor, ratio, target, met]


HEADINGS = ("figure", "min", "median", "max", "unit", "floor", "ratio", "target", "met")


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of at least one value do not exceed (nearest rank)."""
    known = sorted(values)
    return known[min(int(share * len(known)), len(known) - 1)]


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
