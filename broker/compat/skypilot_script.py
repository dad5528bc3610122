"""The script a job runs for a SkyPilot task: its variables, setup, then run."""

from __future__ import annotations

from broker.compat.embedding import PLACE, export, write_file

FOUND = """\
export SKYPILOT_NODE_RANK=${TRADEWIND_RANK:-0} SKYPILOT_SETUP_NODE_RANK=${TRADEWIND_RANK:-0}
tw_head=${TRADEWIND_HEAD_ADDRESS:-} && tw_head=${tw_head%:*}
export SKYPILOT_NODE_IPS="${tw_head:-127.0.0.1}" SKYPILOT_SETUP_NODE_IPS="${tw_head:-127.0.0.1}"
export SKYPILOT_TASK_ID="${TRADEWIND_ATTEMPT:-${TRADEWIND_JOB:-}}" SKYPILOT_INTERNAL_JOB_ID=1
export SKYPILOT_CLUSTER_INFO="{\\"cluster_name\\": \\"${TRADEWIND_CLUSTER:-}\\", \
\\"cloud\\": \\"tradewind\\", \\"region\\": \\"${TRADEWIND_REGION:-}\\"}"
"""


def wrap(setup: str, run: str, nodes: int, gpus: int) -> str:
    """The text of the script: `setup` in a shell of its own, then `run`; both by bash."""
    parts = [
        "#!/bin/sh\n",
        "# Written by tradewind: the variables of a SkyPilot task, then its setup and run.\n",
        PLACE,
        export("SKYPILOT_NUM_NODES", str(nodes)),
        export("SKYPILOT_NUM_GPUS_PER_NODE", str(gpus)),
        FOUND,
    ]
    if setup.strip():
        parts.append(write_file("setup", setup))
        parts.append('bash -l "$tw_dir/setup" || exit $?\n')
    if run.strip():
        parts.append(write_file("run", run))
        parts.append('exec bash -l "$tw_dir/run"\n')
    return "".join(parts)
