"""`tradewind bench`: measure this build. The sub-commands live in modules of their own."""

from __future__ import annotations

from broker.cli.commands import bench_decide, bench_live
from broker.cli.options import group

app = group("Measure this build beside floors of the same run.")

app.command()(bench_decide.decide)
app.command()(bench_live.submit)
app.command()(bench_live.dispatch)
app.command()(bench_live.restart)
