"""tradewind-sinfo: the clusters of the federation, as partitions."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.cli.formatting import mappings
from broker.cli.shims.columns import Field, by_letters
from broker.cli.shims.rows import listed
from broker.cli.shims.running import Arguments
from broker.cli.shims.spool import Spool
from broker.cli.shims.submitting import with_broker
from broker.client import Client

DEFAULT = "%9P %.5a %.10l %.6D %.6t %N"
LONG = "%9P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
NODES = "%20N %.6D %.9P %6t"
SUMMARY = "%9P %.5a %.10l %.16F %N"
_SHORT = {
    "idle": "idle",
    "mixed": "mix",
    "allocated": "alloc",
    "down": "down*",
    "drained": "drain",
}


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of a cluster: what sinfo calls a partition is the cluster, a node set the pool."""

    cluster: Mapping[str, Any]
    pool: Mapping[str, Any]

    @property
    def state(self) -> str:
        """Slurm's long word for its state."""
        if not self.cluster.get("connected"):
            return "down"
        if self.cluster.get("state") == "draining":
            return "drained"
        total, free = self.pool.get("total"), self.pool.get("free")
        if not isinstance(total, int) or not isinstance(free, int):
            return "down"
        return "idle" if free >= total else "allocated" if free <= 0 else "mixed"

    @property
    def nodes(self) -> int:
        """Nodes in the pool."""
        count = self.pool.get("nodes")
        return count if isinstance(count, int) else 0

    @property
    def gres(self) -> str:
        """Accelerators of a node as Slurm writes them."""
        model, total = self.pool.get("accelerator"), self.pool.get("total")
        if model in (None, "CPU") or not isinstance(total, int) or not self.nodes:
            return "(null)"
        return f"gpu:{str(model).lower()}:{total // self.nodes}"

    def counts(self, *, nodes: bool) -> str:
        """allocated/idle/other/total of nodes (as far as known), or of slots."""
        total, free = self.pool.get("total") or 0, self.pool.get("free") or 0
        if not nodes:
            return f"{total - free}/{free}/0/{total}"
        up = self.state in ("idle", "mixed", "allocated")
        idle = self.nodes if self.state == "idle" else 0
        return f"{self.nodes - idle if up else 0}/{idle}/{0 if up else self.nodes}/{self.nodes}"


FIELDS: dict[str, Field[Pool]] = {
    "P": Field("PARTITION", lambda p: str(p.cluster.get("name"))),
    "R": Field("PARTITION", lambda p: str(p.cluster.get("name"))),
    "a": Field("AVAIL", lambda p: "up" if p.cluster.get("connected") else "down"),
    "l": Field("TIMELIMIT", lambda p: "infinite"),
    "D": Field("NODES", lambda p: str(p.nodes)),
    "t": Field("STATE", lambda p: _SHORT[p.state]),
    "T": Field("STATE", lambda p: p.state),
    "N": Field("NODELIST", lambda p: str(p.pool.get("pool"))),
    "n": Field("HOSTNAMES", lambda p: str(p.pool.get("pool"))),
    "G": Field("GRES", lambda p: p.gres),
    "F": Field("NODES(A/I/O/T)", lambda p: p.counts(nodes=True)),
    "A": Field("NODES(A/I)", lambda p: "/".join(p.counts(nodes=True).split("/")[:2])),
    "C": Field("CPUS(A/I/O/T)", lambda p: p.counts(nodes=False)),
    "f": Field("AVAIL_FEATURES", lambda p: str(p.cluster.get("region"))),
    "b": Field("ACTIVE_FEATURES", lambda p: str(p.cluster.get("region"))),
    "V": Field("CLUSTER", lambda p: str(p.cluster.get("name"))),
    "s": Field("JOB_SIZE", lambda p: "1-infinite"),
    "r": Field("ROOT", lambda p: "no"),
    "h": Field("OVERSUBS", lambda p: "NO"),
    "g": Field("GROUPS", lambda p: "all"),
    "c": Field("CPUS", lambda p: "n/a"),
    "m": Field("MEMORY", lambda p: "n/a"),
    "E": Field("REASON", lambda p: "none" if p.cluster.get("connected") else "silent"),
    "z": Field("S:C:T", lambda p: "n/a"),
    "d": Field("TMP_DISK", lambda p: "0"),
    "w": Field("WEIGHT", lambda p: "1"),
    "O": Field("CPU_LOAD", lambda p: "N/A"),
}


def main(arguments: Sequence[str]) -> int:
    """One line per cluster and pool."""
    options = Arguments("sinfo")
    for flags in (
        ("-h", "--noheader"),
        ("-l", "--long"),
        ("-N", "--Node"),
        ("-s", "--summarize"),
        ("-a", "--all"),
        ("-r", "--responding"),
        ("-d", "--dead"),
        ("-e", "--exact"),
        ("-v", "--verbose"),
        ("-V", "--version"),
        ("--federation",),
        ("--local",),
        ("--hide",),
        ("--noconvert",),
    ):
        options.flag(*flags)
    for names in (
        ("-o", "--format"),
        ("-p", "--partition"),
        ("-t", "--states"),
        ("-M", "--clusters"),
        ("-n", "--nodes"),
        ("-S", "--sort"),
    ):
        options.text(*names)
    given = options.parse_args(list(arguments))
    if given.version:
        sys.stdout.write("slurm 22.05.8 (tradewind)\n")
        return 0
    default = (
        NODES if given.Node else SUMMARY if given.summarize else LONG if given.long else DEFAULT
    )
    line = by_letters(given.format or default, FIELDS, "sinfo")
    states = {word.strip("*").lower() for word in listed(given.states)} - {"all"}

    async def work(client: Client, _: Spool) -> list[Pool]:
        clusters = await client.clusters()
        return [
            Pool(cluster, pool)
            for cluster in sorted(clusters, key=lambda each: str(each.get("name")))
            for pool in mappings(cluster.get("pools"))
        ]

    found = [pool for pool in with_broker(work) if _meant(pool, given.partition, states)]
    if given.clusters not in ("", "all"):
        found = [pool for pool in found if pool.cluster.get("name") in listed(given.clusters)]
    if given.responding or given.dead:
        found = [pool for pool in found if (pool.state == "down") == bool(given.dead)]
    if not given.noheader:
        sys.stdout.write(f"{line.heading()}\n")
    sys.stdout.write("".join(f"{line.text(pool)}\n" for pool in found))
    return 0


def _meant(pool: Pool, partitions: str, states: set[str]) -> bool:
    if partitions and pool.cluster.get("name") not in listed(partitions):
        return False
    short = _SHORT[pool.state].rstrip("*")
    return not states or pool.state in states or short in states
