"""The rules of a site's own people, as the API shows them: seen here, ruled there."""

from __future__ import annotations

from typing import Any

from broker.api.views import utc
from broker.model.fleet import Capacity
from federation.site_limits import NameRule

NAMED = ("tenants", "users", "images", "commands", "pools")


def site_rules(capacity: Capacity | None) -> dict[str, Any] | None:
    """None before the first report. A limit of None or an empty rule limits nothing."""
    if capacity is None:
        return None
    limits = capacity.limits
    return {
        **{name: _rule(getattr(limits, name)) for name in NAMED},
        "max_pending": limits.max_pending or None,
        "max_walltime_s": limits.max_walltime_s or None,
        "guest_share": limits.guest_permille / 1_000,
        "banned": sorted(limits.banned),
        "windows": [
            {"from_at": utc(w.from_ms), "until_at": utc(w.until_ms), "reason": w.reason}
            for w in capacity.windows
        ],
    }


def _rule(rule: NameRule) -> dict[str, list[str]]:
    return {"allow": list(rule.allow), "deny": list(rule.deny)}
