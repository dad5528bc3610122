"""The queue as squeue prints it: one line a job, pending elements of an array on one line.

The form of `-o` has been the same for a decade; that of `--json` changes with every release.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from federation.runs import InvalidRuns, Runs
from regional_agent.slurm import states

FORMAT = "%A|%F|%K|%T|%r|%u|%P|%D|%C|%N|%S|%b|%j|%k"
"""Job, array, element(s), state, reason, user, partition, nodes, cpus, node list, start, GRES per
node, name, comment. The comment, in which anything may stand, is last."""
FIELDS = FORMAT.count("|")
ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
"""Times as epoch seconds; the elements of an array in full."""
_GPUS = re.compile(r"\bgpu(?:[:=][a-zA-Z][^:=,]*)?(?:[:=](\d+))?")
_THROTTLE = re.compile(r"%\d+$")


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A line of squeue. `local_id` is that of the array for an element of one; `indices` is
    None for a job that is no array; `start_s`: its start, or the one expected, 0 = unknown;
    `cards`: those it asks for on all its nodes."""

    local_id: str
    job_id: str
    indices: Runs | None
    state: str
    reason: str
    user: str
    partition: str
    nodes: int
    cpus: int
    node_list: str
    start_s: int
    cards: int
    name: str
    comment: str

    @property
    def pending(self) -> bool:
        """It waits."""
        return self.state in states.PENDING

    @property
    def runs(self) -> bool:
        """It holds nodes."""
        return self.state in states.RUNNING

    @property
    def text(self) -> str:
        """State and reason for people."""
        known = self.reason not in ("", "None", "(null)")
        return f"{self.state.lower()}: {self.reason}" if known else self.state.lower()


def parse_queue(out: str) -> tuple[QueueRow, ...]:
    """The rows of `squeue --noheader --format FORMAT`; a line that is none is left out."""
    rows = []
    for line in out.splitlines():
        parts = line.split("|", FIELDS)
        if len(parts) != FIELDS + 1:
            continue
        job, array, elements, state, reason, user, partition, nodes, cpus, where, start = parts[:11]
        indices = parse_elements(elements)
        rows.append(
            QueueRow(
                local_id=job if indices is None else array,
                job_id=job,
                indices=indices,
                state=states.state_word(state),
                reason=reason,
                user=user,
                partition=partition,
                nodes=_number(nodes),
                cpus=_number(cpus),
                node_list=where,
                start_s=_number(start),
                cards=_cards(parts[11]) * max(1, _number(nodes)),
                name=parts[12],
                comment="" if parts[13] == "(null)" else parts[13],
            )
        )
    return tuple(rows)


def parse_elements(text: str) -> Runs | None:
    """Elements of an array as squeue writes them, `1-5,7%2`; None for no array."""
    bare = _THROTTLE.sub("", text.strip("[]"))
    if bare in ("", "N/A", "(null)"):
        return None
    try:
        pairs = [_pair(part) for part in bare.split(",")]
        return Runs.of(pair for some in pairs for pair in some)
    except (ValueError, InvalidRuns):
        return None


def _pair(text: str) -> list[tuple[int, int]]:
    range_, _, step = text.partition(":")
    first, _, last = range_.partition("-")
    low, high = int(first), int(last or first)
    if not step:
        return [(low, high)]
    return [(each, each) for each in range(low, high + 1, int(step))]


def _cards(text: str) -> int:
    """Of `gres:gpu:h100:2` or, newer, `gres/gpu:h100:2`; one where no number is named."""
    found = _GPUS.findall(text)
    return sum(int(number or 1) for number in found)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
