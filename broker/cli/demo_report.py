"""Printing what the demonstration found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cli.explanation import show_explanation
from broker.cli.federation_views import latency_notes, latency_table, price_table
from broker.cli.formatting import mapping, mappings, usd
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
    say(str(mapping(report["comparison"])["note"]))
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
    unknown = [str(job["name"]) for job in mappings(dead["unknown_jobs"])]
    say(
        f"The agent of {dead['cluster']} was killed (SIGKILL) and away for {dead['unseen_s']:g} s. "
        f"Its {len(unknown)} jobs"
    )
    say(f"({', '.join(unknown)}) were unknown, not gone:")
    for line in dead["notes"]:
        say(f"  {line}")
    say(
        f"Its keeper went on: {dead['processes_started_meanwhile']} processes started there or "
        f"elsewhere meanwhile. Back again it adopted {len(dead['adopted_attempts'])} attempts."
    )
    verdict = "each exactly once" if once["holds"] else "NOT each once"
    say(f"Lines the programs wrote: {once['starts']} of {once['expected']} starts, {verdict}.")
    for line in (*once["twice"], *once["missing"]):
        say(f"  {line}")


def _utilisation(report: Report) -> Table:
    table = Table((
        Column("region"), Column("pool"), Column("accelerator"), Column("total", right=True),
        Column("held", right=True), Column("use", right=True),
    ))  # fmt: skip
    for row in mappings(report["utilisation"]):
        table.rows.append((
            str(row["region"]), str(row["pool"]), str(row["accelerator"]), str(row["total"]),
            f"{row['held_accelerator_s']:.0f} acc. s", f"{row['utilisation']:.0%}",
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


def _delays(report: Report) -> Table:
    table = Table((
        Column("region"), Column("attempts", right=True), Column("handshake", right=True),
        Column("prepare", right=True), Column("launch", right=True),
        Column("decision to start", right=True), Column("longest", right=True),
    ))  # fmt: skip
    for row in mappings(report["delays"]):
        table.rows.append((
            str(row["cluster"]), str(row["attempts"]),
            *(f"{row[key]:.1f} ms" for key in (
                "handshake_p50_ms", "prepare_p50_ms", "launch_p50_ms",
                "decision_to_start_p50_ms", "decision_to_start_max_ms",
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
