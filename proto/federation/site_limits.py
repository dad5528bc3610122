"""What a site takes, as it tells the broker: the site enforces it, the broker plans by it.

Names are matched by shell patterns (`*`, `?`, `[..]`), case counts. A name is taken when no
pattern of `deny` fits and, where `allow` names any, one of those does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from federation.refusals import Refusal, RefusalCode
from federation.units import format_duration, format_utc


@dataclass(frozen=True, slots=True)
class NameRule:
    """Patterns of names that are taken, and of names that are not."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Whether this name is taken."""
        if any(fnmatchcase(name, pattern) for pattern in self.deny):
            return False
        return not self.allow or any(fnmatchcase(name, pattern) for pattern in self.allow)

    @property
    def empty(self) -> bool:
        """Whether everything is taken."""
        return not self.allow and not self.deny


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """A time (UTC ms) in which nothing of the federation runs at a site."""

    from_ms: int
    until_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """The rules of a site that do not change by the hour; 0 = no limit.

    `guest_permille`: what part of each pool the federation may hold now, 1000 = all.
    `banned` are users and tenants by name.
    """

    tenants: NameRule = field(default_factory=NameRule)
    users: NameRule = field(default_factory=NameRule)
    images: NameRule = field(default_factory=NameRule)
    commands: NameRule = field(default_factory=NameRule)
    pools: NameRule = field(default_factory=NameRule)
    max_pending: int = 0
    max_walltime_s: int = 0
    guest_permille: int = 1_000
    banned: frozenset[str] = frozenset()


NO_LIMITS = SiteLimits()
"""A site without rules: most have none, and that is quickly seen."""


def user_of(subject: str) -> str:
    """The name of who submitted: `user:ann` is ann."""
    return subject.rpartition(":")[2]


def refuses_person(limits: SiteLimits, site: str, tenant: str, subject: str) -> Refusal | None:
    """Why a site takes nothing of this tenant or user; `subject` empty: not known yet."""
    user = user_of(subject)
    for name in (tenant, user):
        if name and name in limits.banned:
            return Refusal(RefusalCode.BANNED, site, available=f"{name} is banned by the site")
    if not limits.tenants.takes(tenant):
        return Refusal(
            RefusalCode.TENANT_NOT_ALLOWED,
            site,
            available=f"the site does not take jobs of tenant {tenant}",
        )
    if user and not limits.users.takes(user):
        return Refusal(
            RefusalCode.USER_NOT_ALLOWED, site, available=f"the site does not take user {user}"
        )
    return None


def refuses_image(limits: SiteLimits, site: str, image: str | None) -> Refusal | None:
    """Why a site does not run this image."""
    if image is None or limits.images.takes(image):
        return None
    return Refusal(
        RefusalCode.IMAGE_NOT_ALLOWED, site, available=f"the site does not run image {image}"
    )


def refuses_runtime(limits: SiteLimits, site: str, max_runtime_s: int) -> Refusal | None:
    """Why a site does not run anything that long; 0 s = without end."""
    limit_s = limits.max_walltime_s
    if not limit_s or 0 < max_runtime_s <= limit_s:
        return None
    return Refusal(
        RefusalCode.RUNTIME_TOO_LONG,
        site,
        needed=format_duration(max_runtime_s) if max_runtime_s else "no end",
        available=f"{format_duration(limit_s)} at most",
        advice=f"max_runtime {format_duration(limit_s)}",
    )


def refuses_time(
    windows: Iterable[ClosedWindow], site: str, max_runtime_s: int, now_ms: int
) -> Refusal | None:
    """Why a job that starts now is in the way of a window; 0 s = without end."""
    for window in windows:
        if window.until_ms <= now_ms:
            continue
        opens = format_utc(window.until_ms)
        because = f" ({window.reason})" if window.reason else ""
        if window.from_ms <= now_ms:
            return Refusal(
                RefusalCode.BLACKOUT,
                site,
                available=f"closed until {opens}{because}",
                advice=f"wait until {opens}",
            )
        left_s = (window.from_ms - now_ms) // 1000
        if not max_runtime_s or max_runtime_s > left_s:
            return Refusal(
                RefusalCode.MAINTENANCE,
                site,
                needed=format_duration(max_runtime_s) if max_runtime_s else "no end",
                available=f"{format_duration(left_s)} until it closes{because}",
                advice=f"max_runtime {format_duration(left_s)}, or wait until {opens}",
            )
    return None
