"""`tradewind-agent doctor`: everything an agent needs, looked at one by one."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from federation.private_files import PrivateFileError, refuse_shared
from federation.units import format_utc
from regional_agent.act.images import images_missing
from regional_agent.act.isolation import IsolationMissing, find_isolation
from regional_agent.app import version
from regional_agent.enrol import Door, EnrolError, session_check
from regional_agent.identity import IdentityError, load_identity
from regional_agent.settings import SettingsError, load_settings
from regional_agent.site_control import site_file
from regional_agent.site_file import load_site_policy
from regional_agent.site_scheduler import site_pools
from regional_agent.site_state import read_site_state
from regional_agent.site_view import KeeperSeen, keeper_seen
from regional_agent.status import is_running, read_status

DISK_LOW_BYTES = 2**30


@dataclass(frozen=True)
class Check:
    """One thing looked at."""

    name: str
    ok: bool
    text: str


async def doctor(state: Path, now_ms: int) -> list[Check]:
    """Everything an agent needs, looked at one by one."""
    checks = [Check("version", ok=True, text=version()), _private(state), _settings(state)]
    checks.append(_site_rules(state))
    checks.append(_disk(state))
    checks.extend(await _identity(state, now_ms))
    keeper = await keeper_seen(state)
    text = f"pid {keeper.pid}" if keeper.answers else "not running; started with the agent"
    checks.append(Check("keeper", ok=True, text=text))
    checks.extend(_isolation(state, keeper))
    known = read_status(state)
    if not is_running(known):
        checks.append(Check("agent", ok=False, text="not running"))
    else:
        assert known is not None, "running means known"
        reason = "session stands" if known["connected"] else f"no session: {known['reason']}"
        checks.append(Check("agent", ok=bool(known["connected"]), text=reason))
    return checks


def _private(state: Path) -> Check:
    try:
        refuse_shared(state)
    except FileNotFoundError:
        return Check("state directory", ok=False, text=f"{state} is not there")
    except PrivateFileError as problem:
        return Check("state directory", ok=False, text=str(problem))
    return Check("state directory", ok=True, text=str(state))


def _settings(state: Path) -> Check:
    try:
        settings = load_settings(state)
    except SettingsError as problem:
        return Check("settings", ok=False, text=str(problem))
    pools = site_pools(settings)
    shown = ", ".join(
        f"{p.name}: {p.nodes} x {p.accelerators_per_node} {p.accelerator}"
        + (" (simulated)" if p.simulated else "")
        for p in pools
    )
    return Check("pools", ok=bool(pools), text=shown)


def _site_rules(state: Path) -> Check:
    try:
        policy = site_file(load_settings(state))
        load_site_policy(policy.path, named=policy.named)
    except SettingsError as problem:
        return Check("site rules", ok=False, text=str(problem))
    there = "" if policy.path.exists() else ", not there: everything is taken"
    stands = read_site_state(state)
    shut = f"; site {stands.state}: {stands.text or '-'}" if stands.state != "open" else ""
    return Check("site rules", ok=True, text=f"{policy.path}{there}{shut}")


def _isolation(state: Path, keeper: KeeperSeen) -> list[Check]:
    """Each trial with its reason; not to have something is no fault unless it was demanded."""
    try:
        settings = load_settings(state)
        found = find_isolation(settings.isolation, state, limits=True)
    except SettingsError:
        return []  # told above
    except (IsolationMissing, OSError) as problem:
        return [Check("isolation", ok=False, text=str(problem))]
    groups = keeper.groups if keeper.answers else "known once the keeper runs"
    held = groups if isinstance(groups, str) else f"version {groups}"
    return [
        Check("isolation", ok=True, text=f"grade {found.grade}"),
        Check("sandbox", ok=True, text=found.reason or "jobs see neither agent nor each other"),
        Check("control groups", ok=True, text=held if found.limits else "not asked for"),
        Check("images", ok=True, text=images_missing(settings.images, state) or "podman"),
    ]


def _disk(state: Path) -> Check:
    if not state.exists():
        return Check("disk", ok=False, text=f"{state} is not there")
    free = shutil.disk_usage(state).free
    return Check("disk", ok=free > DISK_LOW_BYTES, text=f"{free / 2**30:.1f} GiB free")


async def _identity(state: Path, now_ms: int) -> list[Check]:
    try:
        identity = load_identity(state)
    except IdentityError as problem:
        return [Check("identity", ok=False, text=str(problem))]
    left_ms = identity.facts.not_after_ms - now_ms
    expiry = format_utc(identity.facts.not_after_ms)
    checks = [
        Check("identity", ok=True, text=f"{identity.cluster} in {identity.region}"),
        Check("certificate", ok=left_ms > 0, text=f"until {expiry}"),
    ]
    with contextlib.suppress(SettingsError):
        settings = load_settings(state)
        url = settings.broker or identity.api_url
        door = Door(url, settings.proxies.to_url(url))
        try:
            verdict = await session_check(identity, door=door)
        except EnrolError as problem:
            checks.append(Check("broker", ok=False, text=problem.text))
        else:
            checks.append(Check("broker", ok=verdict.ok, text=verdict.reason))
    return checks
