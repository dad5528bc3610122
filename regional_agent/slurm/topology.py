"""The switches of a site, as `scontrol -o show topology` tells them. Pure.

Switches (topology/tree) were read from a running cluster of 22.05; blocks (topology/block, from
23.11 on) follow its documentation.
"""

from __future__ import annotations

from collections.abc import Mapping

from regional_agent.slurm.limits import fields_of
from regional_agent.slurm.nodes import expand


def parse_topology(out: str) -> Mapping[str, str]:
    """By node the lowest switch, or the block, it is in; empty where the site tells of none."""
    levels: dict[str, tuple[int, str]] = {}
    for line in out.splitlines():
        said = fields_of(line)
        name = said.get("SwitchName") or said.get("BlockName")
        if not name:
            continue
        level = int(said["Level"]) if said.get("Level", "").isdigit() else 0
        for node in expand(said.get("Nodes", "")):
            if node not in levels or level < levels[node][0]:
                levels[node] = (level, name)
    return {node: name for node, (_, name) in levels.items()}
