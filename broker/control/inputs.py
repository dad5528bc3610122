"""Where the inputs of jobs lie, and what the way from there costs, as the planning problem takes
it. Pure.

The problem has one place of data per job. What lies in several regions, or in parts, is put into
the same words: a made-up region, whose ways are those of the parts, each by its cheapest known one.
A way that nobody stated is no way: it is not free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.control.data_ways import Speed, Ways
from broker.model.data import Dataset, Datasets, Pair
from broker.model.fleet import ClusterView
from federation.job_parts import Input
from federation.jobs import JobSpec
from federation.refusals import Refusal, RefusalCode

_BYTES_PER_GB = 1e9
_MADE_UP = "data#"
Table = tuple[tuple[float, ...], ...]
Layout = tuple[tuple[tuple[str, ...], float], ...]
"""Parts by the regions that have them, in GB."""


@dataclass(frozen=True, slots=True)
class Part:
    """One input: how it is called, where all of it lies, where it may be read (empty: anywhere)."""

    name: str
    size_bytes: int
    regions: tuple[str, ...]
    residency: tuple[str, ...] = ()


def part_of(item: Input, datasets: Datasets) -> Part:
    """What is known of an input; without regions where its dataset is gone."""
    if item.dataset is None:
        return Part(str(item.uri), item.size_bytes or 0, item.regions)
    known = datasets.get(item.dataset, Dataset(item.dataset, 0, ()))
    return Part(known.name, known.size_bytes, known.regions, known.residency)


class Inputs:
    """The places of data of one problem; `regions` are those that are real."""

    def __init__(
        self, ways: Ways, datasets: Datasets, regions: Sequence[str]
    ) -> None:
        self._ways, self._datasets, self._real = ways, datasets, tuple(regions)
        self._made_up: dict[Layout, str] = {}
        self._used = False

    def place(self, spec: JobSpec) -> tuple[str | None, float]:
        """Where the problem knows the inputs of a job to lie, and how many GB they are."""
        amounts: dict[tuple[str, ...], float] = {}
        for item in spec.inputs:
            part = part_of(item, self._datasets)
            regions = tuple(sorted(part.regions))
            amounts[regions] = amounts.get(regions, 0.0) + part.size_bytes / _BYTES_PER_GB
        total_gb = sum(amounts.values())
        if not total_gb:
            return None, 0.0
        self._used = True
        layout = tuple(sorted((regions, gb / total_gb) for regions, gb in amounts.items()))
        (first, *_), _ = layout[0]
        if len(layout) == 1 and len(layout[0][0]) == 1 and first in self._real:
            return first, total_gb
        name = self._made_up.setdefault(layout, f"{_MADE_UP}{len(self._made_up)}")
        return name, total_gb

    def refusal(self, spec: JobSpec, view: ClusterView) -> Refusal | None:
        """Why a job's inputs keep it out of a cluster."""
        region = str(view.identity.region)
        for item in spec.inputs:
            part = part_of(item, self._datasets)
            if part.residency and region not in part.residency:
                allowed = ", ".join(part.residency)
                needed = f"a region where {part.name} may be read: {allowed}"
                code = RefusalCode.DATA_RESIDENCY
                return Refusal(code, view.identity.name, needed, region)
            if self._ways.best(part.regions, region) is None:
                return _no_way(part, view)
        return None

    @property
    def regions(self) -> tuple[str, ...]:
        """All regions of the problem: the real ones, then those made up."""
        return (*self._real, *self._made_up.values())

    def tables(self) -> tuple[Table, Table]:
        """Egress in USD per GB and bandwidth in 10^9 bits a second, from row to column; both
        empty where no job has inputs."""
        if not self._used:
            return (), ()
        layouts = {name: layout for layout, name in self._made_up.items()}
        rows = [
            [self._per_gb(layouts.get(a, (((a,), 1.0),)), b) for b in self.regions]
            for a in self.regions
        ]
        egress = tuple(tuple(usd for usd, _ in row) for row in rows)
        speed = tuple(tuple(8 / h / 3600 if h else 0.0 for _, h in row) for row in rows)
        return egress, speed

    def _per_gb(self, layout: Layout, to: str) -> tuple[float, float]:
        """Of a whole layout; nothing where there is no way, which no job may take."""
        usd = hours = 0.0
        for regions, share in layout:
            way = self._ways.best(regions, to)
            if way is None:
                return 0.0, 0.0
            usd, hours = usd + share * way[0], hours + share * way[1]
        return usd, hours


def ways_taken(spec: JobSpec, datasets: Datasets, ways: Ways, to: str) -> list[tuple[str, Speed]]:
    """The regions a job's inputs come to a region from, and how fast; not those within it."""
    parts = (part_of(item, datasets) for item in spec.inputs)
    starts = {start for part in parts if (start := ways.source(part.regions, to))}
    return [(start, ways.speed((start, to))) for start in sorted(starts - {to})]


def _no_way(part: Part, view: ClusterView) -> Refusal:
    lies = ", ".join(part.regions) or "no region"
    return Refusal(
        RefusalCode.DATA_MISSING,
        view.identity.name,
        needed=f"{part.name} in {view.identity.region}",
        available=f"it in {lies}, and no link from there is stated",
        advice=f"allow {part.regions[0]}, or state the link" if part.regions else "",
    )


def padded(rtt_ms: Mapping[Pair, float], regions: Sequence[str]) -> Table:
    """Round trips as a table; those of made-up regions are 0, nobody is there."""
    return tuple(tuple(rtt_ms.get((a, b), 0.0) for b in regions) for a in regions)
