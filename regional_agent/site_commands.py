"""`tradewind-agent pause | resume | drain | evict | ban | unban`: the site's last word.

Each changes the durable state of the site and, if an agent runs, has it take that in at once and
tell the broker. Without an agent it holds from its next start on; evictions reach a local keeper
at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.private_files import PrivateFileError, refuse_shared
from regional_agent import site_view
from regional_agent.control_socket import AgentAway, AgentRefused, ask_agent
from regional_agent.site_state import (
    SiteState,
    banned,
    change_site_state,
    draining,
    evicting,
    paused,
    resumed,
    unbanned,
)
from regional_agent.site_view import SiteProblem

WAIT_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the site stands after a command: what is left to run, and whether an agent knows."""

    state: SiteState
    agent: bool
    left: tuple[dict[str, Any], ...]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "state": self.state.state,
            "reason": self.state.text,
            "deadline_ms": self.state.deadline_ms,
            "agent_running": self.agent,
            "left": list(self.left),
            "banned": sorted(self.state.bans),
        }

    def text(self) -> str:
        """For people."""
        why = f" ({self.state.text})" if self.state.text else ""
        lines = [f"site {self.state.state}{why}"]
        if self.state.bans:
            lines.append(f"banned: {', '.join(sorted(self.state.bans))}")
        if not self.agent:
            lines.append("no agent runs: it holds from its next start on")
        if self.state.state != "open" or self.state.evictions:
            lines.append(f"left: {len(self.left)} attempts")
            lines.extend(
                f"  {row['uid']}  {row['tenant'] or '-'}  {row['phase']}" for row in self.left
            )
        return "\n".join(lines)


async def pause(state_dir: Path, now_ms: int, reason: str) -> Outcome:
    """Take nothing new; what runs goes on."""
    return await _changed(state_dir, lambda before: paused(before, now_ms, reason))


async def resume(state_dir: Path, now_ms: int) -> Outcome:
    """Take work again."""
    return await _changed(state_dir, lambda before: resumed(before, now_ms))


async def drain(
    state_dir: Path, now_ms: int, deadline_ms: int | None, grace_s: int | None, reason: str
) -> Outcome:
    """Take nothing new; what runs at the deadline goes elsewhere. None: as it is, or as usual."""
    return await _changed(
        state_dir, lambda before: draining(before, now_ms, deadline_ms, grace_s, reason)
    )


async def evict(
    state_dir: Path, now_ms: int, names: Sequence[str], grace_s: int, reason: str
) -> Outcome:
    """Stop these attempts, or all of them, so that they run elsewhere."""
    _refuse_no_site(state_dir)
    uids = tuple([await site_view.resolve(state_dir, name) for name in names])
    done = await _changed(state_dir, lambda before: evicting(before, now_ms, uids, grace_s, reason))
    if not done.agent:
        await _stop_at_keeper(state_dir, uids, grace_s)
    return done


async def ban(state_dir: Path, now_ms: int, name: str, reason: str) -> Outcome:
    """Take nothing more of a user or tenant."""
    return await _changed(state_dir, lambda before: banned(before, now_ms, name, reason))


async def unban(state_dir: Path, name: str) -> Outcome:
    """Take work of a user or tenant again."""
    try:
        return await _changed(state_dir, lambda before: unbanned(before, name))
    except KeyError:
        raise SiteProblem(
            f"{name} is not banned by a command here; bans of site.yaml are lifted there"
        ) from None


async def wait_empty(state_dir: Path) -> None:
    """Return once nothing of the federation is left here."""
    while any(not row["outcome"] for row in await site_view.jobs(state_dir)):
        await asyncio.sleep(WAIT_LOOK_S)


async def _changed(state_dir: Path, change: Callable[[SiteState], SiteState]) -> Outcome:
    _refuse_no_site(state_dir)
    try:
        state = change_site_state(state_dir, change)
    except OSError as problem:
        raise SiteProblem(f"{state_dir} cannot be written: {problem}") from problem
    try:
        answer = await ask_agent(state_dir, "reread")
        return Outcome(state, agent=True, left=tuple(answer["left"]))
    except AgentAway:
        live = [row for row in await site_view.jobs(state_dir) if not row["outcome"]]
        return Outcome(state, agent=False, left=tuple(live))
    except AgentRefused as problem:
        raise SiteProblem(str(problem)) from problem


async def _stop_at_keeper(state_dir: Path, uids: Sequence[str], grace_s: int) -> None:
    """Nobody else stops them; the agent tells at its next start that they were evicted."""
    live = [row["uid"] for row in await site_view.jobs(state_dir) if not row["outcome"]]
    doomed = [uid for uid in live if not uids or uid in uids]
    if not doomed:
        return
    scheduler = site_view.open_scheduler(state_dir)
    try:
        for uid in doomed:
            await scheduler.cancel(uid, grace_s)
    finally:
        await scheduler.close()


def _refuse_no_site(state_dir: Path) -> None:
    try:
        refuse_shared(state_dir)
    except FileNotFoundError:
        raise SiteProblem(f"{state_dir} is not there; run: tradewind-agent join") from None
    except PrivateFileError as problem:
        raise SiteProblem(str(problem)) from problem
