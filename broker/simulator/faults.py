"""What goes wrong in a scenario, and when it is over again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from broker.simulator.scenario import FaultPart
from broker.simulator.world import World
from regional_agent.act.backends.memory_journal import MemoryJournal
from regional_agent.simulated import Site

Work = Coroutine[None, None, None]


class Faults:
    """Carries a scenario's faults out. `over` tells whether all are."""

    def __init__(self, world: World, faults: tuple[FaultPart, ...]) -> None:
        self._world = world
        self._left = len(faults)
        for fault in faults:
            if fault.point is not None:
                self._at_point(fault, *fault.point)
            else:
                world.chores.start(self._one(fault), f"fault-{fault.kind}")

    @property
    def over(self) -> bool:
        """Whether every fault has begun and ended. A point never reached counts as over."""
        return self._left == 0

    async def _one(self, fault: FaultPart) -> None:
        try:
            await self._acts(fault)
        finally:
            self._left -= 1

    async def _acts(self, fault: FaultPart) -> None:
        await asyncio.sleep(fault.at_s)
        self._world.say(f"fault {fault.kind} {fault.target}")
        begin = getattr(self, f"_{fault.kind}")
        targets = self._targets(fault)
        undo: list[Callable[[], None]] = []
        if fault.kind.startswith(("broker", "store")):
            undo.append(begin(fault))
        else:
            undo.extend([begin(fault, site) for site in targets])
        await asyncio.sleep(fault.for_s)
        for over in undo:
            over()
        self._world.say(f"fault {fault.kind} {fault.target} is over")

    def _targets(self, fault: FaultPart) -> list[Site]:
        sites = self._world.sites.values()
        return [s for s in sites if fault.target in (s.name, s.region)]

    # Brokers and store ------------------------------------------------------------------------

    def _at_point(self, fault: FaultPart, what: str, count: int) -> None:
        """Kill the first broker around its `count`-th commit or send; it comes back."""
        self._left -= 1
        name = fault.target or "broker-1"
        broker = self._world.brokers[name]

        def hook(now: str, number: int) -> None:
            if (now, number) == (what, count):
                self._world.kill_broker(name)
                self._world.chores.start(self._back(name, fault.for_s), f"back-{name}")

        if what.startswith("commit"):
            broker.store.on_commit = hook
        else:
            broker.gateway.on_send = hook

    async def _back(self, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._world.start_broker(name)

    def _broker_crash(self, fault: FaultPart) -> Callable[[], None]:
        name = fault.target or "broker-1"
        if self._world.brokers[name].dead:
            return lambda: None
        self._world.kill_broker(name)
        return lambda: _none(self._world.start_broker(name))

    def _broker_cut_off(self, fault: FaultPart) -> Callable[[], None]:
        store = self._world.brokers[fault.target or "broker-1"].store
        store.cut_off = True
        return lambda: setattr(store, "cut_off", False)

    def _store_down(self, fault: FaultPart) -> Callable[[], None]:
        weather = self._world.weather
        weather.down = True
        return lambda: setattr(weather, "down", False)

    def _store_slow(self, fault: FaultPart) -> Callable[[], None]:
        weather = self._world.weather
        weather.slow = fault.factor
        return lambda: setattr(weather, "slow", 1.0)

    def _store_ambiguous(self, fault: FaultPart) -> Callable[[], None]:
        weather = self._world.weather
        weather.ambiguous = fault.share
        return lambda: setattr(weather, "ambiguous", 0.0)

    # The way to a site ------------------------------------------------------------------------

    def _partition(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        self._world.sever(site)
        return lambda: self._world.mend(site)

    def _cut(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        for line in site.lines:
            line.cut()
        return lambda: None

    def _flap(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        async def flap() -> None:
            while True:
                self._cut(fault, site)
                await asyncio.sleep(fault.every)

        flapping = self._world.chores.start(flap(), f"flap-{site.name}")
        return lambda: _none(flapping.cancel())

    # The site itself --------------------------------------------------------------------------

    def _agent_crash(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        self._world.kill_agent(site)
        return lambda: self._world.start_agent(site)

    def _power(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        self._world.kill_agent(site)
        site.scheduler.power_fails()
        return lambda: self._world.start_agent(site)

    def _disk(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        self._world.kill_agent(site)
        site.journal = MemoryJournal(f"{site.name}-disk-{site.lives + 1}")
        return lambda: self._world.start_agent(site)

    def _slow(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        conduct, usual_s = site.scheduler.conduct, self._world.start_s(site)
        conduct.start_s = usual_s * fault.factor
        return lambda: setattr(conduct, "start_s", usual_s)

    def _refuse(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        conduct = site.scheduler.conduct
        conduct.refuse = fault.share
        return lambda: setattr(conduct, "refuse", 0.0)

    def _deaf(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        conduct = site.scheduler.conduct
        conduct.down = True
        return lambda: setattr(conduct, "down", False)

    def _unfenced(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        conduct = site.scheduler.conduct
        conduct.fences = False
        return lambda: setattr(conduct, "fences", True)

    def _crowd(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        site.scheduler.crowd(fault.for_s / fault.share)
        return site.scheduler.users_leave

    def _lie(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        site.lies = True
        return lambda: setattr(site, "lies", False)

    def _mute(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        site.mute = True
        return lambda: setattr(site, "mute", False)

    def _drain(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        self._world.chores.start(self._world.drain(site, fault.for_s), f"drain-{site.name}")
        return lambda: None

    def _pause(self, fault: FaultPart, site: Site) -> Callable[[], None]:
        self._state(site, "paused")
        return lambda: self._state(site, "open")

    def _state(self, site: Site, state: str) -> None:
        site.state = state
        if site.agent is not None:
            site.agent.conversation.set_state(state)


def _none(_: object) -> None:
    """An undo gives nothing back."""
