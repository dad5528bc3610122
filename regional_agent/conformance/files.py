"""Rigs whose jobs share the agent's file system: programs leave a line where they begin."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.schedulers.port import LaunchOrder
from regional_agent.conformance.rig import SECRET, Ability, Break, Program

BEGAN = 'echo x >> "$HOME/began.${TRADEWIND_TASK:-0}.$TRADEWIND_RANK"\n'
USUAL: dict[str, object] = {"tenant": "conformance", "cpus_milli": 1000, "grace_s": 5}


def shell_order(uid: str, program: Program, **changes: object) -> LaunchOrder:
    """An order for a program that first says that it began."""
    fields = USUAL | {"uid": uid, "job": uid.rpartition("-")[0]} | changes
    return LaunchOrder(run=BEGAN + program.script, **fields)  # type: ignore[arg-type]


class SharedFiles:
    """The half of a rig that is alike wherever programs and agent see each other's files below the
    agent's state directory, which is made. Nothing can be broken, unless a rig says otherwise."""

    isolation = "shared-uid"
    crash_points: tuple[str, ...] = ()

    def __init__(self, state: Path) -> None:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state = state
        self.secrets = _hide_secrets(state)

    def order(self, uid: str, program: Program, **changes: object) -> LaunchOrder | None:
        """See the rig."""
        return shell_order(uid, program, **changes)

    async def begun(self, uid: str) -> Counter[str]:
        """See the rig."""
        return await asyncio.to_thread(self._begun, uid)

    def _begun(self, uid: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for path in AttemptDir(self.state, uid).work.glob("began.*"):
            found[path.name.removeprefix("began.")] = path.read_text().count("x")
        return found

    @property
    def abilities(self) -> Mapping[Ability, Break]:
        """See the rig."""
        return {}

    async def heal(self) -> None:
        """See the rig."""


def _hide_secrets(state: Path) -> tuple[str, ...]:
    """Lay files no job should read: beside the agent's own, with its own modes."""
    names = ("identity/agent.key", "journal.db", "attempts/foreign-1/work/data")
    paths = [state / "conformance-secrets" / name for name in names]
    for path in paths:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(SECRET)
    return tuple(map(str, paths))
