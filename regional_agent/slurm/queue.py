"""The queue as squeue prints it: one line a job, pending elements of an array on one line.

The form of `-o` has been the same for a decade; that of `--json` changes with every release.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from federation.runs import InvalidRuns, Runs
from regional_agent.slurm import states

FORMAT = "%A|%F|%K|%T|%r|%u|%P|%D|%C|%N|%S|%b|%j|%k"
"""Job, array, element(s), state, reason, user, partition, nodes, cpus, node list, start, GRES per
node, name, comment. The comment, in which anything may stand, is last."""
FIELDS = FORMAT.count("|")
ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
"""Times as epoch seconds; the elements of an array in full."""
OURS = "tradewind"
PACK_PARTS = 4
COMMENT_MAX = 1023
"""Bytes of a comment that slurmctld takes (22.05: 1024 with the end of the string)."""
TAG_MAX = 110
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
    def tag(self) -> str:
        """The comment without the members of a pack."""
        return self.comment[: self.comment.rindex(":")] if self.members else self.comment

    @property
    def members(self) -> tuple[str, ...]:
        """The attempts that the elements of a pack are, by index; empty for other jobs."""
        parts = self.comment.split(":")
        if len(parts) != PACK_PARTS or parts[0] != OURS or parts[2] != "pack":
            return ()
        return tuple(parts[3].split(","))

    @property
    def uids(self) -> tuple[str, ...]:
        """The attempts it is, or stands for; empty for jobs of others."""
        if self.members:
            return tuple(self.members[i] for i in self.indices or () if i < len(self.members))
        head, _, rest = self.comment.partition(":")
        return (rest.rpartition(":")[0],) if head == OURS else ()

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


def comment_of(tag: str, members: Sequence[str] = ()) -> str:
    """The comment of a job, or of a pack, from which `tag` and `members` are read back."""
    return f"{tag}:{','.join(members)}" if members else tag


def members_max(uids: Sequence[str]) -> int:
    """How many uids, from the first on, a comment can name beside its tag."""
    left = COMMENT_MAX - TAG_MAX
    for count, uid in enumerate(uids):
        left -= len(uid) + 1
        if left < 0:
            return count
    return len(uids)


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
                cards=cards_of(parts[11]) * max(1, _number(nodes)),
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


def cards_of(text: str) -> int:
    """Of `gres:gpu:h100:2` or, newer, `gres/gpu:h100:2`; one where no number is named."""
    found = _GPUS.findall(text)
    return sum(int(number or 1) for number in found)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
