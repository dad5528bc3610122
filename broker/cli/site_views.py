"""What a site's own people have ruled, as lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cli.formatting import NONE, Now, count, mapping, mappings, moment, number, seconds, text

Document = Mapping[str, Any]
_NAMED = ("tenants", "users", "images", "commands", "pools")


def site_facts(cluster: Document, now: Now) -> list[tuple[str, str]]:
    """What limits the federation at this site; nothing where nothing does."""
    rules = mapping(cluster.get("site_rules"))
    facts = [("site says", text(cluster.get("site_reason")))]
    facts += [(f"site {name}", _names(mapping(rules.get(name)))) for name in _NAMED]
    share = number(rules.get("guest_share"))
    limits = [
        f"{share * 100:g} % of each pool now" if share is not None and share < 1 else "",
        _limit("jobs up to", seconds(rules.get("max_walltime_s"))),
        _limit("waiting at most", count(rules.get("max_pending"))),
    ]
    facts.append(("site limits", ", ".join(limit for limit in limits if limit) or NONE))
    banned = rules.get("banned")
    facts.append(("banned", ", ".join(map(text, banned)) if isinstance(banned, list) else NONE))
    windows = [_window(window, now) for window in mappings(rules.get("windows"))[:3]]
    facts.append(("closed", "; ".join(windows) or NONE))
    return [(name, shown) for name, shown in facts if shown not in (NONE, "")]


def local_load(cluster: Document) -> str:
    """What the site's own users run and hold; nothing where it is nothing."""
    load = mapping(cluster.get("local_load"))
    told = [
        f"{count(load.get(key))} {word}"
        for key, word in (("running", "jobs"), ("waiting", "waiting"), ("accelerators", "cards"))
        if load.get(key)
    ]
    return ", ".join(told) or NONE


def _names(rule: Document) -> str:
    parts = []
    for word in ("allow", "deny"):
        names = rule.get(word)
        if isinstance(names, list) and names:
            parts.append(f"{word} {', '.join(map(text, names))}")
    return "; ".join(parts) or NONE


def _limit(what: str, amount: str) -> str:
    return "" if amount == NONE else f"{what} {amount}"


def _window(window: Document, now: Now) -> str:
    reason = text(window.get("reason"))
    until = moment(window.get("until_at"), now)
    shown = f"{moment(window.get('from_at'), now)} until {until}"
    return shown if reason == NONE else f"{shown} ({reason})"
