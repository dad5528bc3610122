"""`python -m broker.cli.shims sbatch ...`: one of the old commands by its name."""

from __future__ import annotations

import sys

from broker.cli.shims import running

PROGRAMS = {
    "sbatch": running.sbatch, "squeue": running.squeue, "scancel": running.scancel,
    "sinfo": running.sinfo, "sacct": running.sacct, "qsub": running.qsub,
    "qstat": running.qstat, "qdel": running.qdel,
}  # fmt: skip

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PROGRAMS:
        sys.exit(f"usage: python -m broker.cli.shims {{{','.join(PROGRAMS)}}} ...")
    PROGRAMS[sys.argv.pop(1)]()
