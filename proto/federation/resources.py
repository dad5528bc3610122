"""Amounts of what a node has and a job takes, as plain frozen vectors."""

from __future__ import annotations

from dataclasses import dataclass

from federation.jobs import Resources


@dataclass(frozen=True, slots=True)
class ResourceVector:
    """Thousandths of a cpu, bytes of memory and disk, accelerators of a model named elsewhere.

    Differences may be negative; `fits_in` compares every component.
    """

    cpus_milli: int = 0
    memory_bytes: int = 0
    accelerators: int = 0
    disk_bytes: int = 0

    def __add__(self, other: ResourceVector) -> ResourceVector:
        return ResourceVector(
            self.cpus_milli + other.cpus_milli,
            self.memory_bytes + other.memory_bytes,
            self.accelerators + other.accelerators,
            self.disk_bytes + other.disk_bytes,
        )

    def __sub__(self, other: ResourceVector) -> ResourceVector:
        return self + other * -1

    def __mul__(self, times: int) -> ResourceVector:
        return ResourceVector(
            self.cpus_milli * times,
            self.memory_bytes * times,
            self.accelerators * times,
            self.disk_bytes * times,
        )

    def fits_in(self, free: ResourceVector) -> bool:
        """Whether every component is at most that of `free`."""
        return (
            self.cpus_milli <= free.cpus_milli
            and self.memory_bytes <= free.memory_bytes
            and self.accelerators <= free.accelerators
            and self.disk_bytes <= free.disk_bytes
        )

    def copies_in(self, free: ResourceVector) -> int | None:
        """How many of this vector fit in `free` at once; None when it asks for nothing."""
        pairs = (
            (self.cpus_milli, free.cpus_milli),
            (self.memory_bytes, free.memory_bytes),
            (self.accelerators, free.accelerators),
            (self.disk_bytes, free.disk_bytes),
        )
        counts = [max(have, 0) // need for need, have in pairs if need > 0]
        return min(counts, default=None)


def replica_vector(resources: Resources) -> ResourceVector:
    """What one replica of a job with these resources takes."""
    return ResourceVector(
        cpus_milli=resources.cpus_milli,
        memory_bytes=resources.memory_bytes,
        accelerators=resources.accelerator_count,
        disk_bytes=resources.disk_bytes or 0,
    )
