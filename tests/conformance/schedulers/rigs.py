"""The schedulers under the conformance suite that need no service.

Another scheduler joins by a rig here or in a module beside it, and a line in `RIGS` of
`conftest.py`; see `regional_agent/conformance/rig.py` for what a rig is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from federation.system import SystemClock, SystemRng
from regional_agent.act.images import find_images, images_dir
from regional_agent.act.isolation import SANDBOXED, Isolation, Wanted
from regional_agent.act.keeper import crash
from regional_agent.act.schedulers.port import LaunchOrder, LocalScheduler, Outcome
from regional_agent.act.schedulers.process import ProcessScheduler, ProcessSettings
from regional_agent.act.schedulers.simulated import SimScheduler
from regional_agent.conformance.files import SharedFiles, shell_order
from regional_agent.conformance.rig import Ability, Break, Program
from regional_agent.session.ledger import Place
from tests.image_store import ImageStore


class ProcessRig(SharedFiles):
    """The keeper of this host, which a crash point kills."""

    kind = "process"
    patience_s = 15.0
    # Those passed on the way to a start; the end and the cancel have tests of their own.
    crash_points = tuple(point for point in crash.POINTS if point != "cancel-synced")

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self._scheduler: ProcessScheduler | None = None

    async def open(self, crash_at: str = "") -> LocalScheduler:
        if self._scheduler is not None:
            if crash_at:  # a keeper takes its plan at its start
                await self._scheduler.shut_down(kill=True)
            await self._scheduler.close()
        arguments = (f"--crash-at={crash_at}",) if crash_at else ()
        self._scheduler = ProcessScheduler(self.settings(arguments))
        return self._scheduler

    def settings(self, arguments: tuple[str, ...]) -> ProcessSettings:
        return ProcessSettings(self.state, 0, (), arguments)

    async def close(self) -> None:
        scheduler = await self.open()
        assert isinstance(scheduler, ProcessScheduler)
        await scheduler.shut_down(kill=True)
        await scheduler.close()


class ContainerRig(ProcessRig):
    """The same keeper; every job names an image."""

    kind = "containers"
    isolation = "sandboxed"
    crash_points = ("order-written", "forked", "released", "exit-appended")

    def __init__(self, state: Path, store: ImageStore) -> None:
        super().__init__(state)
        store.unpacked.mkdir(exist_ok=True)  # once for all cases
        images_dir(state).symlink_to(store.unpacked)
        found = find_images(store.wishes, Wanted(SANDBOXED), state, SystemClock())
        assert not isinstance(found, str), found
        self._images, self._image = found, store.image

    def settings(self, arguments: tuple[str, ...]) -> ProcessSettings:
        isolation = Isolation(limits=True)
        return ProcessSettings(self.state, 0, (), arguments, isolation, self._images)

    def order(self, uid: str, program: Program, **changes: object) -> LaunchOrder | None:
        return shell_order(uid, program, image=self._image, **changes)


class _Seen:
    """What really happened at the twin."""

    def __init__(self) -> None:
        self.begun: dict[str, Counter[str]] = defaultdict(Counter)

    def started(self, site: str, order: LaunchOrder, task: int, places: tuple[Place, ...]) -> None:
        for rank in range(order.replicas):
            self.begun[order.uid][f"{task}.{rank}"] += 1

    def stopped(self, site: str, order: LaunchOrder, task: int, outcome: Outcome) -> None:
        pass


class SimulatedRig:
    """The twin in memory. It outlives the agent, and keeps nothing between two steps."""

    kind = "simulated"
    patience_s = 5.0
    isolation = "shared-uid"
    crash_points: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    abilities: Mapping[Ability, Break]

    def __init__(self) -> None:
        self.seen = _Seen()
        self.scheduler = SimScheduler("twin", SystemClock(), SystemRng(), self.seen)
        self.abilities = MappingProxyType(
            {
                Ability.NODE_DIES: self._power_fails,
                Ability.FILL: self._slow,
            }
        )

    async def open(self, crash_at: str = "") -> LocalScheduler:
        return self.scheduler

    def order(self, uid: str, program: Program, **changes: object) -> LaunchOrder | None:
        if program.shell:
            return None
        argv = ("work", str(program.runs_s), str(program.exit_code))
        fields = {"uid": uid, "job": uid.rpartition("-")[0], "tenant": "team"} | changes
        return LaunchOrder(argv=argv, **fields)  # type: ignore[arg-type]

    async def begun(self, uid: str) -> Counter[str]:
        return self.seen.begun[uid]

    async def _power_fails(self, uid: str) -> None:
        self.scheduler.power_fails()

    async def _slow(self, uid: str) -> None:
        self.scheduler.conduct.start_s = 60.0

    async def heal(self) -> None:
        self.scheduler.conduct.start_s = 0.2

    async def close(self) -> None:
        pass
