"""Prices in `agent.yaml`: what an accelerator hour costs, in which hours, and how safe it is."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, model_validator

from federation.units import parse_rfc3339_ms, usd_to_micro
from regional_agent.scheduler_settings import Part
from regional_agent.sense.prices import DeclaredPrice, HourlyPrice, PriceKind
from regional_agent.session.hours import DAY_MINUTES, Hours
from regional_agent.week_fields import EVERY_DAY, Clock, Days, some_time, zone_name

_DAY_TEXT_CHARS = len("2026-01-31")


def _day_ms(value: object) -> int:
    """A date or an RFC 3339 time, as UTC ms; YAML may have read it already."""
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    if len(text) == _DAY_TEXT_CHARS:
        text += "T00:00:00Z"
    return parse_rfc3339_ms(text)


class PriceHours(Part):
    """Hours of the week with a price of their own."""

    days: Days = EVERY_DAY
    from_minute: Annotated[Clock, Field(alias="from")] = 0
    until_minute: Annotated[Clock, Field(alias="to")] = DAY_MINUTES
    marginal_micro_usd: Annotated[
        int, BeforeValidator(usd_to_micro), Field(alias="usd_per_accelerator_hour")
    ]

    @model_validator(mode="after")
    def _not_empty(self) -> PriceHours:
        some_time(self.from_minute, self.until_minute)
        return self


class PriceSettings(Part):
    """A price as a fact: what, since when, from where."""

    pool: str
    kind: PriceKind
    marginal_micro_usd: Annotated[
        int, BeforeValidator(usd_to_micro), Field(alias="usd_per_accelerator_hour")
    ]
    full_micro_usd: Annotated[
        int | None,
        BeforeValidator(usd_to_micro),
        Field(alias="full_usd_per_accelerator_hour"),
    ] = None
    as_of_ms: Annotated[int, BeforeValidator(_day_ms), Field(alias="as_of")]
    source: str
    valid_from_ms: Annotated[int, BeforeValidator(_day_ms), Field(alias="valid_from")] = 0
    valid_until_ms: Annotated[int, BeforeValidator(_day_ms), Field(alias="valid_until")] = 0
    timezone: Annotated[str, BeforeValidator(zone_name)] = "UTC"
    hours: tuple[PriceHours, ...] = ()
    preemptions_per_hour: Annotated[float, Field(ge=0, le=60)] = 0.0

    def declared(self) -> DeclaredPrice:
        """As the collector takes it. Raises InvalidPrice (a ValueError)."""
        full = self.marginal_micro_usd if self.full_micro_usd is None else self.full_micro_usd
        zone = ZoneInfo(self.timezone)
        return DeclaredPrice(
            pool=self.pool,
            kind=self.kind,
            marginal_micro_usd=self.marginal_micro_usd,
            full_micro_usd=full,
            as_of_ms=self.as_of_ms,
            source=self.source,
            valid_from_ms=self.valid_from_ms,
            valid_until_ms=self.valid_until_ms,
            hours=tuple(
                HourlyPrice(
                    Hours(h.days, h.from_minute, h.until_minute, zone), h.marginal_micro_usd
                )
                for h in self.hours
            ),
            preemptions_per_h=self.preemptions_per_hour,
        )
