"""Rigs whose jobs share the agent's file system: programs leave a line where they begin."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.schedulers.port import LaunchOrder
from regional_agent.conformance.rig import SECRET, Program

BEGAN = 'echo x >> "$HOME/began.${TRADEWIND_TASK:-0}.$TRADEWIND_RANK"\n'
USUAL: dict[str, object] = {"tenant": "conformance", "cpus_milli": 1000, "grace_s": 5}


def shell_order(uid: str, program: Program, **changes: object) -> LaunchOrder:
    """An order for a program that first says that it began."""
    fields = USUAL | {"uid": uid, "job": uid.rpartition("-")[0]} | changes
    return LaunchOrder(run=BEGAN + program.script, **fields)  # type: ignore[arg-type]


@dataclass(slots=True)
class SharedFiles:
    """What programs and agent see of each other below the agent's state directory."""

    state: Path
    secrets: tuple[str, ...] = field(default=())

    async def begun(self, uid: str) -> Counter[str]:
        """See the rig."""
        return await asyncio.to_thread(self._begun, uid)

    def _begun(self, uid: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for path in AttemptDir(self.state, uid).work.glob("began.*"):
            found[path.name.removeprefix("began.")] = path.read_text().count("x")
        return found

    def hide_secrets(self) -> None:
        """Lay files no job should read: beside the agent's own, with its own modes."""
        names = ("identity/agent.key", "journal.db", "attempts/foreign-1/work/data")
        paths = [self.state / "conformance-secrets" / name for name in names]
        for path in paths:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(SECRET)
        self.secrets = tuple(map(str, paths))
