"""What the conversation asks of its shell: first writes, in one commit, then effects.

Nothing is done and nothing is sent before the writes of the same input are durable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from federation.jobs import JobSpec
from federation.runs import Runs
from regional_agent.session.commands import Dispatch, Placement
from regional_agent.session.events import Event
from regional_agent.session.ledger import Reservation

# Writes: lines of the journal ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Take:
    """Raise the highest command taken and the highest epoch seen."""

    dispatch_seq: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Accept:
    """Remember an attempt, before anything is done for it. `reservation` is
    `held.reservation_text`."""

    command: Dispatch
    epoch: int
    reservation: str
    accepted_ms: int


@dataclass(frozen=True, slots=True)
class Retake:
    """The same attempt dispatched again, with a ticket of a newer epoch."""

    uid: str
    dispatch_seq: int
    epoch: int
    ticket: bytes


@dataclass(frozen=True, slots=True)
class Remember:
    """How far an attempt came; `detail` is what `memory.read` reads back."""

    uid: str
    state: str
    at_ms: int
    detail: bytes


@dataclass(frozen=True, slots=True)
class Tell:
    """Queue an event under this number. `last`: the attempt's row becomes a tombstone with this
    `detail`."""

    event_seq: int
    event: Event
    last: bool = False
    detail: bytes = b""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The broker has these events."""

    event_seq: int


@dataclass(frozen=True, slots=True)
class NumberFrom:
    """Number events above what the broker has."""

    event_seq: int


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the brokers are, for the next start."""

    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """A tombstone may go."""

    uid: str


Write = (
    Take | Accept | Retake | Remember | Tell | Acknowledge | NumberFrom | Addresses | Drop
)

# Effects: what to do at the site ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """Stage (unless `staged`) and hand over to the scheduler. `look_first`: it may be there.
    `contact_s`: see `Dispatch`; after a restart of the agent there was none."""

    uid: str
    job: str
    tenant: str
    ticket: bytes
    spec: JobSpec
    placement: Placement
    reservation: Reservation
    staged: bool = False
    look_first: bool = False
    traceparent: str = ""
    contact_s: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop it, or see that it never starts."""

    uid: str
    grace_s: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """End it if it has not begun."""

    uid: str


@dataclass(frozen=True, slots=True)
class Reslice:
    """Give a slice this set of tasks."""

    uid: str
    dispatch_seq: int
    tasks: Runs
    width: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Bring results to the broker and see how long the logs are. `paths` are the job's."""

    uid: str
    ticket: bytes
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """See whether the scheduler holds it."""

    uid: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Let the scheduler drop it, with its work directory."""

    uid: str


@dataclass(frozen=True, slots=True)
class Warm:
    """Fetch these blobs, (digest, bytes), into the cache, and the image, when nothing else is to be
    fetched; nothing comes of it but what is here then."""

    job: str
    ticket: bytes
    blobs: tuple[tuple[str, int], ...]
    image: str = ""


@dataclass(frozen=True, slots=True)
class Complain:
    """Tell the broker, beside the events, of a command that was not carried out."""

    text: str


Effect = Launch | Cancel | Withdraw | Reslice | Collect | Look | Clear | Warm | Complain


@dataclass(slots=True)
class Actions:
    """Writes to make durable together, then effects, each in order."""

    writes: list[Write] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
