"""What an attempt used, as the site measured it. Amounts add up over tasks and replicas."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Measured use of one attempt or a sum of them; `max_rss_bytes` is the highest of a member.

    `wall_ms` and `accelerator_ms` sum over members: two replicas running for a second are 2,000
    ms of wall time. All are >= 0; raises ValueError otherwise.
    """

    wall_ms: int = 0
    cpu_ms: int = 0
    max_rss_bytes: int = 0
    accelerator_ms: int = 0

    def __post_init__(self) -> None:
        for name in Usage.__slots__:
            if getattr(self, name) < 0:
                raise ValueError(f"usage {name} {getattr(self, name)} is not valid: 0 or more")

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            wall_ms=self.wall_ms + other.wall_ms,
            cpu_ms=self.cpu_ms + other.cpu_ms,
            max_rss_bytes=max(self.max_rss_bytes, other.max_rss_bytes),
            accelerator_ms=self.accelerator_ms + other.accelerator_ms,
        )
