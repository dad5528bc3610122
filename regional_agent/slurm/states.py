"""The states of a job in Slurm, and what each means to us.

From "JOB STATE CODES" of squeue(1) and sacct(1), 20.11 to 25.05. A state that is not here is
neither an end nor a failure.
"""

from __future__ import annotations

PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT",
                     "RESV_DEL_HOLD"})  # fmt: skip
RUNNING = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING",
                     "STAGE_OUT", "RESIZING", "EXPEDITING", "POWER_UP_NODE"})  # fmt: skip
SUCCEEDED = frozenset({"COMPLETED"})
FAILED = frozenset({"FAILED"})
TIMED_OUT = frozenset({"TIMEOUT", "DEADLINE"})
OUT_OF_MEMORY = frozenset({"OUT_OF_MEMORY"})
CANCELLED = frozenset({"CANCELLED"})
PREEMPTED = frozenset({"PREEMPTED"})
LOST = frozenset({"NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"})
ENDED = SUCCEEDED | FAILED | TIMED_OUT | OUT_OF_MEMORY | CANCELLED | PREEMPTED | LOST
"""REVOKED is not among them: a sibling of the federation has the job."""


def state_word(text: str) -> str:
    """The state without what may follow it: `CANCELLED by 0`, `RUNNING+`."""
    words = text.split()
    return words[0].rstrip("+") if words else ""
