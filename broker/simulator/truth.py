"""What really happened at the sites, seen from outside, and what rules itself out at once.

Nothing asserts inside the system: violations are collected as lines of text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from federation.refusals import Refusal
from federation.tickets import read_ticket
from regional_agent.act.schedulers.port import LaunchOrder, Outcome, OutcomeKind
from regional_agent.session.actions import Launch
from regional_agent.session.commands import Command, Dispatch
from regional_agent.session.ledger import Place, Pool
from regional_agent.simulated import Site

VIOLATIONS_MAX = 100
SUPERSEDED = "superseded"
"""Said of an attempt whose place another took: by then its site must have stopped it."""


@dataclass(slots=True)
class Span:
    """One run of one task: from when to when (virtual s), where, on how many accelerators."""

    site: str
    uid: str
    job: str
    task: int
    cards: int
    places: tuple[Place, ...]
    since_s: float
    until_s: float | None = None
    outcome: Outcome | None = None


class Truth:
    """The witness of all sites. `say` takes lines for the transcript; `phase_of` gives what the
    store says of an attempt (cluster, uid): its phase, `superseded` where another counts instead,
    empty for nothing."""

    def __init__(
        self,
        now_s: Callable[[], float],
        say: Callable[[str], None],
        phase_of: Callable[[str, str], str],
    ) -> None:
        self._now_s = now_s
        self._say = say
        self._phase_of = phase_of
        self.pools: dict[tuple[str, str], Pool] = {}
        self.ticket_keys: Mapping[str, bytes] = {}
        self.violations: list[str] = []
        self.spans: list[Span] = []
        self.running: dict[tuple[str, int], Span] = {}
        self._begun: set[tuple[str, int]] = set()
        self._doubled: dict[tuple[str, int], Span] = {}
        self._done: dict[tuple[str, int], dict[str, str]] = {}
        self._stale: set[bytes] = set()
        self._cards: dict[tuple[str, str, int, int], str] = {}
        self._cpus: Counter[tuple[str, str, int]] = Counter()
        self._memory: Counter[tuple[str, str, int]] = Counter()

    def wrong(self, text: str) -> None:
        """Something that must never be."""
        self._say(f"VIOLATION {text}")
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"at {self._now_s():.3f} s: {text}")

    def succeeded(self, job: str, task: int = 0, *, anyhow: bool = False) -> bool:
        """Whether a task has run to a good end somewhere, in an attempt that counts. `anyhow`: or
        in one that did, or whose result was kept."""
        winners = self._done.get((job, task), {})
        if anyhow:
            return bool(winners)
        return any(self._phase_of(site, uid) != SUPERSEDED for uid, site in winners.items())

    # Witness of the schedulers ----------------------------------------------------------------

    def started(self, site: str, order: LaunchOrder, task: int, places: tuple[Place, ...]) -> None:
        """See `scheduler.Witness`."""
        run, name = (order.job, task), f"{order.uid}/{task}"
        self._say(f"{site} starts {name}")
        other = self.running.get(run)
        if other is not None:
            self.wrong(f"{name} starts at {site} while {other.uid} runs at {other.site}")
            self._doubled[other.uid, task] = other
        if self.succeeded(*run):
            self.wrong(f"{name} starts at {site} although it has succeeded before")
        if (order.uid, task) in self._begun:
            self.wrong(f"{name} starts twice")
        phase = self._phase_of(site, order.uid)
        if phase in ("", "ended", SUPERSEDED):
            self.wrong(f"{name} starts at {site}, in the store it is {phase or 'unknown'}")
        self._begun.add((order.uid, task))
        cards = sum(max(1, len(place.accelerators)) for place in places)
        self.running[run] = Span(
            site, order.uid, order.job, task, cards, places, self._now_s()
        )
        self._take(site, order, name, places)

    def stopped(self, site: str, order: LaunchOrder, task: int, outcome: Outcome) -> None:
        """See `scheduler.Witness`."""
        self._say(f"{site} ends {order.uid}/{task} {outcome.kind}")
        doubled = self._doubled.pop((order.uid, task), None)
        span = doubled or self.running.pop((order.job, task))
        span.until_s, span.outcome = self._now_s(), outcome
        self.spans.append(span)
        if outcome.kind is OutcomeKind.SUCCEEDED:
            self._done.setdefault((order.job, task), {})[order.uid] = site
        for place in span.places:
            node = (site, place.pool, place.node)
            for card in place.accelerators:
                self._cards.pop((*node, card), None)
            self._cpus[node] -= order.cpus_milli
            self._memory[node] -= order.memory_bytes

    def _take(
        self, site: str, order: LaunchOrder, name: str, places: tuple[Place, ...]
    ) -> None:
        if not places:
            self.wrong(f"{name} runs at {site} without a place")
        for place in places:
            pool, node = self.pools[site, place.pool], (site, place.pool, place.node)
            for card in place.accelerators:
                other = self._cards.setdefault((*node, card), name)
                if other != name:
                    self.wrong(f"card {card} of {node} is given to {name} and to {other}")
                if card >= pool.accelerators_per_node or place.node >= pool.nodes:
                    self.wrong(f"{name} sits on card {card} of {node}, which is not there")
            self._cpus[node] += order.cpus_milli
            self._memory[node] += order.memory_bytes
            if self._cpus[node] > pool.cpus_milli or self._memory[node] > pool.memory_bytes:
                self.wrong(f"{node} has more cpus or memory given out than it has")

    # Witness of the agents --------------------------------------------------------------------

    def commanded(self, site: Site, commands: tuple[Command, ...]) -> None:
        """Commands arrive at an agent: those under an epoch it knows to be over are marked."""
        for command in commands:
            if isinstance(command, Dispatch):
                ticket = read_ticket(command.ticket, self.ticket_keys)
                if isinstance(ticket, Refusal) or ticket.epoch < site.journal.epoch:
                    self._stale.add(command.ticket)

    def launched(self, site: Site, launch: Launch) -> None:
        """An agent asks for a launch."""
        ticket = read_ticket(launch.ticket, self.ticket_keys)
        if launch.ticket in self._stale or isinstance(ticket, Refusal):
            self.wrong(f"{launch.uid} starts at {site.name} with a ticket that is not in force")
        elif (ticket.uid, ticket.cluster) != (launch.uid, site.name):
            self.wrong(f"{launch.uid} starts at {site.name} with a ticket of {ticket.uid}")
        if launch.uid not in site.journal.rows:
            self.wrong(f"{launch.uid} starts at {site.name} and is not in its journal")
