"""The site's people at a running agent: their rules, their decisions, their questions.

`site.yaml` and `site-state.json` are the truth; here they are taken in when they change, and a
drain that is over becomes an eviction. Nothing of it needs a broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from federation.environment import Clock
from federation.site_limits import user_of
from federation.tickets import accepted_subject
from regional_agent.control_socket import ControlServer
from regional_agent.session.held import Held
from regional_agent.session.inputs import Input, RulesChanged, SiteStops
from regional_agent.session.progress import EVICTED
from regional_agent.session.site_policy import SitePolicy
from regional_agent.settings import AgentSettings, SettingsError
from regional_agent.site_file import FILE, SiteFile
from regional_agent.site_state import SiteState, read_site_state
from regional_agent.worker import Worker

LOOK_S = 2.0
_log = logging.getLogger(__name__)


class SiteControl:
    """Made with the agent; `begin` before anything is taken up, then `run`."""

    def __init__(self, settings: AgentSettings, worker: Worker, clock: Clock) -> None:
        self._state_dir = settings.state_dir
        self._worker = worker
        self._clock = clock
        self._file = site_file(settings)
        self._policy = SitePolicy()
        self._told: RulesChanged | None = None
        self._look = asyncio.Event()
        self.state = SiteState()
        self.news = asyncio.Event()
        """Set whenever `state` or `fault` changes."""
        self._server = ControlServer(
            settings.state_dir,
            {"reread": self._reread, "attempts": self._attempts, "stop": self._stop},
        )

    @property
    def fault(self) -> str:
        """What is wrong with the site's rules as they lie there; the last good ones hold."""
        return self._file.fault

    def begin(self) -> list[Input]:
        """What an agent has to know before it takes anything up. Raises SettingsError for rules
        that cannot be read: none would be kept."""
        policy = self._file.changed(always=True)
        if policy is None:
            raise SettingsError(self._file.fault)
        self._policy = policy
        return self._news()

    async def run(self) -> None:
        """For ever: take in what changes."""
        await self._server.start()
        try:
            while True:
                self._take_in(always=self._look.is_set())
                self._look.clear()
                try:
                    async with asyncio.timeout(LOOK_S):
                        await self._look.wait()
                except TimeoutError:
                    continue
        finally:
            await self._server.close()

    def reread(self) -> None:
        """Look now, whatever the files' times say."""
        self._look.set()

    def _take_in(self, *, always: bool) -> None:
        before, state = self._file.fault, self.state
        policy = self._file.changed(always=always)
        if policy is not None:
            self._policy = policy
            _log.info("the site's rules are read anew")
        elif self._file.fault and self._file.fault != before:
            _log.error("the site's rules stay as they were: %s", self._file.fault)
        for happened in self._news():
            self._worker.put(happened)
        if (before, state) != (self._file.fault, self.state):
            self.news.set()

    def _news(self) -> list[Input]:
        """What is new of rules and decisions, as the conversation takes it."""
        self.state = state = read_site_state(self._state_dir)
        news: list[Input] = []
        banned = self._policy.limits.banned | frozenset(state.bans)
        policy = replace(self._policy, limits=replace(self._policy.limits, banned=banned))
        rules = RulesChanged(state.state, state.text, policy)
        if rules != self._told:
            self._told = rules
            news.append(rules)
        news.extend(self._stops(state))
        return news

    def _stops(self, state: SiteState) -> list[Input]:
        untouched = [h for h in self._worker.conversation.known if h.live and not h.stop_why]
        if not untouched:
            return []
        if state.everything_goes(self._clock.now_ms()):
            return [SiteStops(None, EVICTED, state.grace_s)]
        return [
            SiteStops(frozenset((held.uid,)), EVICTED, state.evictions[held.uid].grace_s)
            for held in untouched
            if held.uid in state.evictions
        ]

    # Asked at the socket ----------------------------------------------------------------------

    async def _reread(self, _: Mapping[str, Any]) -> dict[str, Any]:
        self._take_in(always=True)
        instant = await self._worker.instant()
        return {"state": instant.rules.state, "reason": instant.rules.state_reason,
                "fault": self.fault, "left": self._left()}  # fmt: skip

    async def _attempts(self, _: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [_shown(held) for held in self._worker.conversation.known]

    async def _stop(self, request: Mapping[str, Any]) -> str:
        uid, grace_s = str(request["uid"]), int(request["grace_s"])
        held = self._worker.conversation.held(uid)
        if held is None or not held.live:
            raise ValueError(f"no attempt {uid} runs here")
        await self._worker.put_durably(SiteStops(frozenset((uid,)), "cancelled", grace_s))
        return uid

    def _left(self) -> list[dict[str, Any]]:
        return [_shown(held) for held in self._worker.conversation.known if held.live]


def site_file(settings: AgentSettings) -> SiteFile:
    """Where the rules of this agent's site lie."""
    path: Path = settings.site_rules or settings.state_dir / FILE
    return SiteFile(path, named=settings.site_rules is not None)


def _shown(held: Held) -> dict[str, Any]:
    last = getattr(held.last, "kind", "refused") if held.last is not None else ""
    phase = "ended" if held.last else "running" if held.started else held.state
    return {
        "uid": held.uid,
        "job": held.job,
        "tenant": held.tenant,
        "user": user_of(accepted_subject(held.ticket)),
        "phase": phase,
        "outcome": last,
        "stopping": held.stop_why if held.live else "",
        "local_id": held.local_id,
        "accepted_ms": held.accepted_ms,
        "started_ms": held.started_ms,
        "ended_ms": held.ended_ms,
    }
