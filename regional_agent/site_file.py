"""`site.yaml`: the rules of the centre, read strictly; see docs/site-rules.md.

The file belongs to whoever owns the machines, may lie outside the agent's state directory and
need not be writable by the agent. A fault in it is one line with the key, the value and what
would be right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from federation.site_limits import NameRule, SiteLimits
from federation.units import parse_bytes, parse_duration_s, parse_rfc3339_ms
from regional_agent.session.hours import DAY_MINUTES, Hours
from regional_agent.session.site_policy import Blackout, DataReads, GuestShare, SitePolicy
from regional_agent.settings import SettingsError, faults
from regional_agent.week_fields import EVERY_DAY, Clock, Days, some_time, zone_name

FILE = "site.yaml"
_PERCENT = re.compile(r"(\d+(?:\.\d)?) ?%")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def _rule(value: object) -> object:
    """A list alone is what is allowed."""
    return {"allow": value} if isinstance(value, list | tuple) else value


def _permille(value: object) -> int:
    match = _PERCENT.fullmatch(str(value))
    permille = round(float(match[1]) * 10) if match else -1
    if not 0 <= permille <= 1_000:
        raise ValueError(f"{value!r} is not a part from 0% to 100%, such as 25%")
    return permille


def _instant_ms(value: object) -> int:
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return parse_rfc3339_ms(text)


class _Names(_Part):
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def rule(self) -> NameRule:
        return NameRule(self.allow, self.deny)


Names = Annotated[_Names, BeforeValidator(_rule)]


class _ShareHours(_Part):
    days: Days = EVERY_DAY
    from_minute: Annotated[Clock, Field(alias="from")] = 0
    until_minute: Annotated[Clock, Field(alias="to")] = DAY_MINUTES
    share: Annotated[int, BeforeValidator(_permille)]

    @model_validator(mode="after")
    def _not_empty(self) -> _ShareHours:
        some_time(self.from_minute, self.until_minute)
        return self


class _Share(_Part):
    default: Annotated[int, BeforeValidator(_permille)] = 1_000
    hours: tuple[_ShareHours, ...] = ()


class _Blackout(_Part):
    """Once from an instant to another, or every week by the wall clock."""

    reason: str = ""
    start_ms: Annotated[int, BeforeValidator(_instant_ms), Field(alias="start")] = 0
    end_ms: Annotated[int, BeforeValidator(_instant_ms), Field(alias="end")] = 0
    days: Days | None = None
    from_minute: Annotated[Clock | None, Field(alias="from")] = None
    until_minute: Annotated[Clock | None, Field(alias="to")] = None

    @model_validator(mode="after")
    def _one_kind(self) -> _Blackout:
        once = bool(self.start_ms or self.end_ms)
        weekly = self.from_minute is not None and self.until_minute is not None
        if once == weekly or (once and self.days is not None):
            raise ValueError("give start and end (once), or days, from and to (every week)")
        if once and not 0 < self.start_ms < self.end_ms:
            raise ValueError("end must come after start")
        if weekly:
            some_time(self.from_minute, self.until_minute)
        return self

    def blackout(self, zone: ZoneInfo) -> Blackout:
        if self.start_ms:
            return Blackout(self.reason, once=(self.start_ms, self.end_ms))
        assert self.from_minute is not None and self.until_minute is not None, "checked above"
        days = EVERY_DAY if self.days is None else self.days
        return Blackout(
            self.reason, weekly=Hours(days, self.from_minute, self.until_minute, zone)
        )


_USUAL = DataReads()


class _DataReads(_Part):
    size_bytes: Annotated[
        int, BeforeValidator(parse_bytes), Field(alias="size", ge=0, le=2**30)
    ] = _USUAL.size_bytes
    bytes_per_s: Annotated[
        int, BeforeValidator(parse_bytes), Field(alias="rate", ge=2**10)
    ] = _USUAL.bytes_per_s
    every_s: Annotated[
        int, BeforeValidator(parse_duration_s), Field(alias="every", ge=3_600, le=86_400)
    ] = _USUAL.every_s

    def limits(self) -> DataReads:
        return DataReads(self.size_bytes, self.bytes_per_s, self.every_s)


def _off(value: object) -> object:
    """`off`, which YAML 1.1 reads as false, is nothing read at all."""
    return {"size": "0B"} if value is False or value == "off" else value


class _File(_Part):
    timezone: Annotated[str, BeforeValidator(zone_name)] = "UTC"
    tenants: Names = _Names()
    users: Names = _Names()
    images: Names = _Names()
    commands: Names = _Names()
    pools: Names = _Names()
    guest_share: _Share = _Share()
    blackouts: tuple[_Blackout, ...] = ()
    max_pending: Annotated[int, Field(ge=1)] | None = None
    max_queued: Annotated[int, Field(ge=0, le=10_000)] | None = None
    queue_start_s: Annotated[
        int, BeforeValidator(parse_duration_s), Field(alias="queue_start", ge=0)
    ] = 0
    max_walltime_s: Annotated[
        int | None, BeforeValidator(parse_duration_s), Field(alias="max_walltime")
    ] = None
    data_reads: Annotated[_DataReads, BeforeValidator(_off)] = _DataReads()
    ban: tuple[str, ...] = ()

    def policy(self) -> SitePolicy:
        """The rules as values."""
        zone = ZoneInfo(self.timezone)
        share = tuple(
            (Hours(h.days, h.from_minute, h.until_minute, zone), h.share)
            for h in self.guest_share.hours
        )
        return SitePolicy(
            limits=SiteLimits(
                tenants=self.tenants.rule(),
                users=self.users.rule(),
                images=self.images.rule(),
                commands=self.commands.rule(),
                pools=self.pools.rule(),
                max_pending=self.max_pending or 0,
                max_walltime_s=self.max_walltime_s or 0,
                banned=frozenset(self.ban),
            ),
            share=GuestShare(self.guest_share.default, share),
            blackouts=tuple(each.blackout(zone) for each in self.blackouts),
            max_queued=self.max_queued,
            queue_start_ms=self.queue_start_s * 1000,
            data_reads=self.data_reads.limits(),
        )


def load_site_policy(path: Path, *, named: bool = False) -> SitePolicy:
    """The rules in `path`; without such a file none, unless it was `named` on purpose.

    Raises SettingsError.
    """
    try:
        body: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            raise SettingsError(f"{path}: no such file (site_rules in agent.yaml)") from None
        return SitePolicy()
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise SettingsError(f"{path}: {' '.join(str(problem).split())}") from problem
    if body is None:
        return SitePolicy()
    if not isinstance(body, dict):
        raise SettingsError(f"{path}: not a mapping of keys")
    try:
        return _File.model_validate(body).policy()
    except ValidationError as problem:
        models = (_File, _Names, _Share, _ShareHours, _Blackout, _DataReads)
        lines = (f"{path}: {line}" for line in faults(problem, models))
        raise SettingsError("\n".join(lines)) from problem


@dataclass(slots=True)
class SiteFile:
    """The file, looked at now and then; the last rules that could be read stay in force.

    `fault` says what is wrong with the file as it is now, empty for nothing.
    """

    path: Path
    named: bool = False
    fault: str = ""
    _stamp: tuple[int, int, int] | None = None

    def changed(self, *, always: bool = False) -> SitePolicy | None:
        """The rules, if the file is another than at the last look (or `always`) and right."""
        try:
            seen = self.path.stat()
            stamp: tuple[int, int, int] | None = (seen.st_mtime_ns, seen.st_size, seen.st_ino)
        except OSError:
            stamp = None
        if stamp == self._stamp and not always:
            return None
        self._stamp = stamp
        try:
            policy = load_site_policy(self.path, named=self.named)
        except SettingsError as problem:
            self.fault = str(problem)
            return None
        self.fault = ""
        return policy
