"""The candidate table and the rest of an explanation, of a job or of a dry run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cli import starts
from broker.cli.formatting import (
    NONE,
    Now,
    age,
    at,
    count,
    epoch_ms,
    gbits,
    mapping,
    mappings,
    milliseconds,
    moment,
    number,
    seconds,
    text,
    usd,
)
from broker.cli.output import Column, Table

Explanation = Mapping[str, Any]


def candidate_table(explanation: Explanation) -> Table:
    """Every place that was looked at: when it would start, what it would cost, or why not."""
    table = Table(
        (
            Column("", styled=True), Column("cluster"), Column("pool"), Column("accelerator"),
            Column("start in", right=True), Column("rate", right=True),
            Column("total", right=True), Column("egress", right=True),
            Column("round trip", right=True), Column("why not", fold=True),
        ),
        empty="no cluster was looked at",
    )  # fmt: skip
    rows = _ordered(mappings(explanation.get("candidates")))
    egress, trips = (any(number(row.get(key)) for row in rows) for key in ("egress_usd", "rtt_ms"))
    for candidate in rows:
        rate = usd(candidate.get("rate_usd_per_hour"))
        table.rows.append((
            _mark(candidate),
            text(candidate.get("cluster")), _place(candidate),
            text(candidate.get("accelerator")), _start_in(candidate),
            rate if rate == NONE else f"{rate}/h", usd(candidate.get("total_usd")),
            usd(candidate.get("egress_usd")) if egress else NONE,  # it has no inputs, or no users
            milliseconds(candidate.get("rtt_ms")) if trips else NONE,
            _why_not(candidate),
        ))  # fmt: skip
    return table


def _place(candidate: Mapping[str, Any]) -> str:
    pool = text(candidate.get("pool"))
    return f"{pool} (queue)" if candidate.get("queued") else pool


def _start_in(candidate: Mapping[str, Any]) -> str:
    """The middle, and what nine of ten starts keep, where that says more; where a place is taken,
    after the wait for room, and `?` where no room is in sight. Nothing where it cannot start."""
    usual = number(candidate.get("start_delay_s"))
    late = number(candidate.get("start_delay_p90_s"))
    room = candidate.get("room_in_s")
    if isinstance(room, list) and len(room) == 2:
        usual = (usual or 0.0) + (number(room[0]) or 0.0)
        late = (late or 0.0) + (number(room[1]) or 0.0)
    elif at(candidate, "why_not", "code") in ("no_capacity", "no_cpus", "no_memory"):
        return "?"
    elif candidate.get("feasible") is False and (
        at(candidate, "why_not", "code") not in _BY_START
    ):
        return NONE
    first, last = seconds(usual), seconds(late)
    return first if last in (NONE, first) else f"{first}-{last}"


_BY_START = ("deadline_too_soon", "start_delay_exceeded")
"""Refused because of when it would start."""


def _mark(candidate: Mapping[str, Any]) -> str:
    if candidate.get("chosen") is not True:
        return ""
    copies = number(candidate.get("copies"))
    return f"CHOSEN x {copies:,.0f}" if copies and copies > 1 else "CHOSEN"


def _ordered(candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def rank(candidate: dict[str, Any]) -> tuple[bool, bool, float, str, str]:
        total = number(candidate.get("total_usd"))
        return (
            candidate.get("chosen") is not True,
            candidate.get("feasible") is not True,
            total if total is not None else float("inf"),
            text(candidate.get("cluster")),
            text(candidate.get("pool")),
        )

    return sorted(candidates, key=rank)


def _why_not(candidate: Mapping[str, Any]) -> str:
    return _without_place(_sentence(candidate.get("why_not")), candidate)


def _without_place(said: str, row: Mapping[str, Any]) -> str:
    """A reason less the place it begins with, which stands in the row already."""
    cluster, pool = text(row.get("cluster")), text(row.get("pool"))
    return said.removeprefix(f"{cluster}/{pool}: ").removeprefix(f"{cluster}: ")


def _sentence(reason: object) -> str:
    if isinstance(reason, str):
        return text(reason)
    said, advice = text(at(reason, "text")), text(at(reason, "advice"))
    if said == NONE:
        said = text(at(reason, "code"))
    told = advice == NONE or said.endswith(f"; {advice}")  # the text of a refusal ends with it
    return said if told else f"{said}; {advice}"


def waiting_table(explanation: Explanation) -> Table:
    """For a job that waits: per cluster, what binds and what would help."""
    table = Table(
        (
            Column("cluster"), Column("pool"), Column("standing", fold=True),
            Column("what binds", fold=True), Column("would start it now", fold=True),
        ),
        empty="",
    )  # fmt: skip
    for reason in mappings(explanation.get("waiting")):
        standing = text(reason.get("standing"))
        table.rows.append((
            text(reason.get("cluster")), text(reason.get("pool")),
            (standing if standing != NONE else text(reason.get("code"))).replace("_", " "),
            _without_place(
                text(reason.get("text")) if reason.get("change") else _sentence(reason), reason
            ),
            text(reason.get("change")),
        ))  # fmt: skip
    return table.without_blank_columns()


def explanation_lines(explanation: Explanation, now: Now) -> list[str]:
    """What there is to say below the tables: the smallest change, the decision, the others."""
    lines = _terms(explanation, now) + starts.explained_lines(explanation) + _admission(explanation)
    told = explanation.get("moved")
    lines.extend(f"Moved: {text(each)}." for each in (told if isinstance(told, list) else ()))
    change = text(at(explanation, "smallest_change", "text"))
    if change != NONE:
        cluster = text(at(explanation, "smallest_change", "cluster"))
        place = "" if cluster == NONE or cluster in change else f" (in {cluster})"
        checked = at(explanation, "smallest_change", "verified") is True
        proof = ", tried by solving again" if checked else ", estimated"
        lines.append(f"Smallest change that would start it: {change}{place}{proof}.")
    lines.extend(ending_lines(mapping(explanation.get("ends")), now))
    lines.extend(_unchanged(mapping(explanation.get("starts_unchanged")), now))
    lines.extend(_decision(mapping(explanation.get("decision")), now))
    lines.extend(_others(mapping(explanation.get("others"))))
    return lines


def _admission(explanation: Explanation) -> list[str]:
    """What admission says of a job that is only tried: its turn, and what its quota leaves."""
    if "admission" not in explanation:
        return []
    told = mapping(explanation.get("admission"))
    if not told:
        return [
            "This replica does not lead: fair share and what is kept for others are not looked at."
        ]
    lines, share, most = [], number(told.get("share")), number(told.get("may_take"))
    if told.get("turn") is False:
        held = "" if share is None else f" ({share:.2f} of its share; 1.00 is exactly it)"
        lines.append(f"Others come before its tenant{held}: it gets what they leave.")
    if most is not None:
        lines.append(f"Its tenant's quota leaves {count(most)} more accelerators.")
    return lines


def _unchanged(starts: Mapping[str, Any], now: Now) -> list[str]:
    """When it starts if nothing changes, and how far such predictions can be trusted."""
    first, last = moment(starts.get("from_at"), now), moment(starts.get("until_at"), now)
    if first == NONE:
        return []
    span = f"at {first}" if first == last else f"between {first} and {last}"
    line = f"If nothing changes it starts {span} in {text(starts.get('cluster'))}"
    made, kept = number(starts.get("predictions")), number(starts.get("within_until"))
    if not made or kept is None:
        return [f"{line}; no such prediction has come due here yet."]
    return [f"{line}; of {made:,.0f} such predictions {kept:.0%} came true by the later time."]


def _wall(value: object, now: Now) -> str:
    """A moment on the user's clock, as one says it: `14:10`, `Fri 14:10`, else with its date."""
    found = epoch_ms(value)
    if found is None:
        return NONE
    then, today = now.local(found), now.local(now.ms)
    days = (then.date() - today.date()).days
    if 0 <= days < 7:
        return then.strftime("%H:%M" if days == 0 else "%a %H:%M")
    return then.strftime("%Y-%m-%d %H:%M")


def ending_lines(ends: Mapping[str, Any], now: Now) -> list[str]:
    """When it ends, what would end it sooner, and whether the deadline holds."""
    usual, late = _wall(ends.get("expected_at"), now), _wall(ends.get("late_at"), now)
    if usual == NONE:
        return []
    means = text(ends.get("late_means"))
    by = f"90 % by {late}" if means == "90 %" else f"at the latest {late}"
    parts = [f"ends {usual}" + ("" if late == usual else f", {by}")]
    for other in mappings(ends.get("alternatives")):
        more = number(other.get("difference_usd")) or 0.0
        cost = f"{usd(abs(more))} {'more' if more > 0 else 'less'}" if more else "the same cost"
        end = _wall(other.get("expected_at"), now)
        parts.append(f"{text(other.get('what'))}: {end} for {cost}")
    lines = [f"{'; '.join(parts)} (by {text(ends.get('basis'))})."]
    due = _wall(ends.get("deadline_at"), now)
    if ends.get("slips") is True:
        lines.append(f"WARNING: that is past the deadline, {due}.")
    elif ends.get("at_risk") is True:
        lines.append(f"The deadline is {due}: the late end is past it.")
    elif due != NONE:
        lines.append(f"The deadline is {due}.")
    return lines


def _terms(explanation: Explanation, now: Now) -> list[str]:
    """What the total of each chosen place is made of."""
    lines = []
    for candidate in mappings(explanation.get("candidates")):
        terms = mapping(candidate.get("terms"))
        parts = [
            f"{text(name).removesuffix('_usd').replace('_', ' ')} {usd(amount)}"
            for name, amount in terms.items()
            if number(amount)
        ]
        if candidate.get("chosen") is True and parts:
            lines.append(f"Cost in {text(candidate.get('cluster'))}: {', '.join(parts)}.")
        if candidate.get("chosen") is True:
            lines.extend(_inputs(candidate, now))
    return lines


def _inputs(candidate: Mapping[str, Any], now: Now) -> list[str]:
    """By which ways the inputs come to a chosen place, and how the speed of each is known."""
    ways = []
    for way in mappings(candidate.get("transfer_ways")):
        old = age(way.get("as_of_at"), now)
        known = text(way.get("known_by")) + (f" {old} ago" if old != NONE else "")
        speed = "unknown speed" if number(way.get("gbps")) is None else f"{gbits(way)}, {known}"
        ways.append(f"{text(way.get('from_region'))} ({speed})")
    took = seconds(candidate.get("transfer_s"))
    return [f"Inputs come from {', '.join(ways)} in {took}."] if ways else []


def _decision(decision: Mapping[str, Any], now: Now) -> list[str]:
    status = text(decision.get("status"))
    if status == NONE:
        return []
    line = f"Decided {age(decision.get('decided_at'), now)} ago"
    if age(decision.get("decided_at"), now) == NONE:
        line = "Decided"
    cycle = text(decision.get("cycle"))
    line += f" in cycle {cycle}" if cycle != NONE else ""
    line += f": {status}"
    gap = number(decision.get("gap"))
    if status == "optimal" and gap == 0:
        line += ", no better plan exists"
    elif gap is not None:
        line += f", within {gap:.2%} of the best possible"
    bound = usd(decision.get("bound_usd"))
    if bound != NONE:
        line += f" (objective {usd(decision.get('objective_usd'))}, bound {bound})"
    spent_s = number(decision.get("cpu_s"))
    if spent_s is None:
        return [f"{line}."]
    spent = milliseconds(spent_s * 1000) if spent_s < 1 else seconds(spent_s)
    return [f"{line}, {spent} of CPU time."]


def _others(others: Mapping[str, Any]) -> list[str]:
    names = (("higher", "accelerators_higher"), ("equal", "accelerators_equal"),
             ("lower", "accelerators_lower"))  # fmt: skip
    parts = [f"{count(others[key])} at {name}" for name, key in names
             if number(others.get(key)) is not None]  # fmt: skip
    if parts and not any(number(others.get(key)) for _, key in names):
        return ["No other job holds accelerators."]
    return [f"Accelerators held by other jobs: {', '.join(parts)} priority."] if parts else []


def price_notes(explanation: Explanation, now: Now) -> list[str]:
    """Where the prices came from that were compared, once per source: those of places that could
    take the job, or that its kind of accelerator is at."""
    seen: dict[str, str] = {}
    rows = mappings(explanation.get("candidates"))
    for candidate in [row for row in rows if row.get("total_usd") is not None] or rows:
        source = text(candidate.get("price_source"))
        if source != NONE:
            seen.setdefault(source, age(candidate.get("price_as_of_at"), now))
    parts = [f"{source} ({old} old)" if old != NONE else source for source, old in seen.items()]
    return [f"Prices: {', '.join(parts)}."] if parts else []
