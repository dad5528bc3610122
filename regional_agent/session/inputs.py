"""All that can happen to the agent's half of the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from federation.runs import Runs
from regional_agent.session.commands import Command
from regional_agent.session.events import Output
from regional_agent.session.resettle import SiteSeen
from regional_agent.session.site_policy import SitePolicy


@dataclass(frozen=True, slots=True)
class Now:
    """The instant at which an input is taken: broker time as reckoned here, and the clock of
    this site, both UTC ms."""

    broker_ms: int
    site_ms: int


# From the broker ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionStands:
    """A session is established; `ticket_keys` maps kid to public key."""

    epoch: int
    ticket_keys: Mapping[str, bytes]
    resume_event_seq: int
    disk_replaced: bool
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateArrived:
    """A frame of the broker: commands in order and what it has committed of our events."""

    epoch: int
    commands: tuple[Command, ...] = ()
    ack_event_seq: int = 0


# From the local scheduler ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class End:
    """How a task or attempt ended, in the words of the scheduler port."""

    kind: str
    exit_code: int = 0
    signal: int = 0


@dataclass(frozen=True, slots=True)
class LocalView:
    """The newest state of an attempt at the local scheduler; times by the site's clock.

    `phase` is queued, starting, running, ended or unknown.
    """

    uid: str
    phase: str
    unstarted: Runs
    running: Runs
    ended: tuple[tuple[End, Runs], ...] = ()
    submitted_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    outcome: End | None = None
    wall_ms: int = 0
    cpu_ms: int = 0
    max_rss_bytes: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LocalChanged:
    """Attempts that changed."""

    views: tuple[LocalView, ...]


# What became of effects -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Staged:
    """Files and code are laid."""

    uid: str
    prepare_ms: int
    fetched_bytes: int = 0
    cached_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LaunchRefused:
    """Staging or the local scheduler will not have it; `code` is a refusal code."""

    uid: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Submitted:
    """The local scheduler has durably taken it on."""

    uid: str
    local_id: str


@dataclass(frozen=True, slots=True)
class StaysHere:
    """It was to be taken back and has begun: it runs on."""

    uid: str


@dataclass(frozen=True, slots=True)
class SliceIs:
    """The scheduler's answer to a new set of tasks; `tasks` None: it will not (`text`)."""

    uid: str
    dispatch_seq: int
    tasks: Runs | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """Whether the scheduler holds an attempt; `local_id` empty: it does not."""

    uid: str
    local_id: str
    view: LocalView | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """Results are at the broker; `note` says what is missing, empty for nothing."""

    uid: str
    outputs: tuple[Output, ...]
    logs: tuple[tuple[str, int], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The scheduler has dropped it."""

    uid: str


@dataclass(frozen=True, slots=True)
class RulesChanged:
    """What the site's people decided: `state` as in `SiteRules`, its reason, their rules."""

    state: str
    reason: str
    policy: SitePolicy


@dataclass(frozen=True, slots=True)
class SiteStops:
    """The site's people want attempts ended; `uids` None: all. `why` is evicted (it may run
    elsewhere) or cancelled."""

    uids: frozenset[str] | None
    why: str
    grace_s: int


@dataclass(frozen=True, slots=True)
class Sensed:
    """The site was looked at: what its scheduler has, and who holds what of it."""

    seen: SiteSeen


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Look at the clock: old tombstones may go."""


Input = (
    SessionStands
    | UpdateArrived
    | LocalChanged
    | Staged
    | LaunchRefused
    | Submitted
    | StaysHere
    | SliceIs
    | Looked
    | Collected
    | Forgotten
    | RulesChanged
    | SiteStops
    | Sensed
    | TimePassed
)
