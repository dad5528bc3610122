"""Printing what the demonstration found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cli.explanation import show_explanation
from broker.cli.federation_views import latency_notes, latency_table, price_table
from broker.cli.formatting import mapping, mappings, milliseconds, usd
from broker.cli.job_views import job_table
from broker.cli.output import Column, Table, say, show
from broker.cli.session import now

Report = Mapping[str, Any]
RULES = (
    ("tradewind", "Tradewind"),
    ("cheapest_price_first", "cheapest price first"),
    ("home_region_only", "home region only"),
)


def show_report(report: Report) -> None:
    """Everything, section by section."""
    moment = now()
    _title("All jobs of all regions, in one table")
    show(job_table(mappings(report["jobs"]), moment).without_blank_columns())
    _title("Nothing ran twice")
    _show_dead_region(report)
    _title("Use of each region's pools while there was work (cards are simulated)")
    show(_utilisation(report))
    _title("What was paid, against simpler rules on the same jobs")
    show(_comparison(report))
    for line in _in_words(report):
        say(line)
    _title("How long a start takes, measured")
    show(_delays(report))
    _title("Prices are facts with a day and a source; round trips are measured where they can be")
    show(price_table(mappings(report["prices"]), moment).without_blank_columns())
    say()
    show(latency_table(mapping(report["latency"])))
    for line in latency_notes(mapping(report["latency"]), moment):
        say(line)
    receipt, impossible = mapping(report["receipt"]), mapping(report["impossible"])
    _title(f"The receipt of {receipt['name']}: why it ran where it ran")
    show_explanation(receipt, moment)
    _title(f"Why {impossible['name']} waits")
    show_explanation(impossible, moment)
    _title("Next")
    for line in _next(report):
        say(f"  {line}")


def _title(text: str) -> None:
    say()
    say(f"== {text}")
    say()


def _show_dead_region(report: Report) -> None:
    dead, once = mapping(report["dead_region"]), mapping(report["once"])
    say(
        f"The agent of {dead['cluster']} was killed (SIGKILL) and away for {dead['unseen_s']:g} s. "
        "What was known meanwhile:"
    )
    say()
    show(_unknown(report))
    for line in dead["notes"]:
        say(line)
    say()
    say(
        f"Its keeper went on and started {dead['processes_started_there_meanwhile']} processes. "
        f"Back again the agent adopted {len(dead['adopted_attempts'])} attempts."
    )
    verdict = "each exactly once" if once["holds"] else "NOT each once"
    say(f"Lines the programs wrote: {once['starts']} of {once['expected']} starts, {verdict}.")
    for line in (*once["twice"], *once["missing"]):
        say(f"  {line}")


def _unknown(report: Report) -> Table:
    dead = mapping(report["dead_region"])
    ends = {job["id"]: mapping(job["outcome"]).get("kind") for job in mappings(report["jobs"])}
    table = Table((
        Column("job"), Column("where"), Column("known now"), Column("last heard"),
        Column("in the end"),
    ))  # fmt: skip
    for job in mappings(dead["unknown_jobs"]):
        heard, array = str(job["last_heard_phase"]), mapping(job["last_heard_array"])
        if array:
            heard += f", {array['succeeded']} of {array['tasks']} done"
        end = str(ends.get(job["id"]) or "-")
        table.rows.append((str(job["name"]), str(dead["cluster"]), "unknown", heard, end))
    return table


def _utilisation(report: Report) -> Table:
    table = Table((
        Column("region"), Column("pool"), Column("accelerator"), Column("total", right=True),
        Column("held", right=True), Column("use", right=True),
    ))  # fmt: skip
    for row in mappings(report["utilisation"]):
        table.rows.append((
            str(row["region"]), str(row["pool"]), str(row["accelerator"]), str(row["total"]),
            f"{row['held_accelerator_s']:.0f} accelerator s", f"{row['utilisation']:.0%}",
        ))  # fmt: skip
    return table


def _comparison(report: Report) -> Table:
    found = mapping(report["comparison"])
    table = Table((
        Column("rule"), Column("paid", right=True), Column("mean wait", right=True),
        Column("longest", right=True), Column("done after", right=True),
        Column("never ran", fold=True),
    ))  # fmt: skip
    for key, name in RULES:
        row = mapping(found[key])
        never = row.get("never") or []
        table.rows.append((
            name, usd(row["paid_usd"]), f"{row['mean_wait_s']:.1f} s",
            f"{row['longest_wait_s']:.1f} s", f"{row['end_s']:.1f} s", ", ".join(never) or "-",
        ))  # fmt: skip
    return table


def _in_words(report: Report) -> list[str]:
    """The comparison as sentences: placing as much as possible goes before paying little."""
    found = mapping(report["comparison"])
    ours = mapping(found["tradewind"])
    lines = []
    for key, name in RULES[1:]:
        row = mapping(found[key])
        paid = _against(row["tradewind_paid_for_these_usd"], row["paid_usd"])
        said = f"Against {name}: paid {paid} for the same jobs, "
        said += f"waited {_against(ours['mean_wait_s'], row['mean_wait_s'])}"
        never = row.get("never") or []
        lines.append(said + (f"; that rule never runs {', '.join(never)}." if never else "."))
    lines.append("Tradewind starts as much as it can and then pays the least for that.")
    return [*lines, f"Note: {found['note']}."]


def _against(ours: float, theirs: float) -> str:
    if theirs <= 0:
        return "the same" if ours <= 0 else "more"
    change = ours / theirs - 1
    if abs(change) < 0.005:
        return "the same"
    return f"{abs(change):.0%} {'less' if change < 0 else 'more'}"


def _delays(report: Report) -> Table:
    table = Table((
        Column("region"), Column("new session", right=True), Column("kept one", right=True),
        Column("attempts", right=True),
        Column("prepare", right=True), Column("launch", right=True),
        Column("decision to start", right=True), Column("longest", right=True),
    ))  # fmt: skip
    for row in mappings(report["delays"]):
        table.rows.append((
            str(row["cluster"]),
            *(milliseconds(row[key]) for key in ("new_session_ms", "kept_session_ms")),
            str(row["attempts"]),
            *(milliseconds(row[key]) for key in (
                "prepare_p50_ms", "launch_p50_ms", "decision_to_start_p50_ms",
                "decision_to_start_max_ms",
            )),
        ))  # fmt: skip
    return table


def _next(report: Report) -> list[str]:
    kept = mapping(report.get("kept"))
    if kept:
        home = f"TRADEWIND_HOME={kept['home']}"
        return [
            f"it is still up at {kept['url']}",
            f"{home} tradewind jobs",
            f"{home} tradewind explain too-big",
            f"{home} tradewind down",
        ]
    return [
        "tradewind up                                        keep such a federation here",
        "tradewind submit -- python3 -c 'print(42)'          run something in it",
        "tradewind clusters invite gpu1 --region us-east     let a real machine join",
    ]
