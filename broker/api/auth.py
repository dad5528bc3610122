"""Who calls: the holder of a bearer token, or an agent with the ticket of one of its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from broker.api.problems import Problem
from broker.api.services import Services
from broker.control.tokens import TokenBook, split_token
from broker.control.viewing import Viewer
from broker.model.fleet import ClusterState
from broker.model.jobs import Attempt, JobPhase
from broker.state import keys
from federation.ids import is_prepare_uid
from federation.refusals import Refusal
from federation.tickets import Ticket, parse_ticket_header, read_ticket
from federation.wire import records as pb

LOOK_AGAIN_PER_S = 20

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="tradewind"'}


class Bearer(NamedTuple):
    """The holder of a token."""

    viewer: Viewer


@dataclass(frozen=True, slots=True)
class TicketHolder:
    """An agent acting for one attempt; `attempt` None: preparing for a job that waits, which
    lets it read what the job starts with and nothing else."""

    ticket: Ticket
    attempt: Attempt | None


def unauthorised(why: str) -> Problem:
    """401 with the reason in one line."""
    return Problem(401, "unauthorised", why, headers=_CHALLENGE)


class Auth:
    """Reads `Authorization` headers."""

    def __init__(self, services: Services, tokens: TokenBook) -> None:
        self._services = services
        self._tokens = tokens
        self._second = 0
        self._looked = 0

    async def bearer(self, header: str) -> Bearer:
        """The holder of the token. Raises Problem 401 saying why in one line."""
        if not header:
            raise unauthorised("no token: send Authorization: Bearer tw_...")
        scheme, _, text = header.partition(" ")
        if scheme.lower() != "bearer":
            raise unauthorised("this takes Authorization: Bearer tw_...")
        text = text.strip()
        now_ms = self._services.clock.now_ms()
        verdict = self._tokens.verify(text, now_ms)
        if isinstance(verdict, str):
            parts = split_token(text)
            if parts is None or self._tokens.known(text):
                raise unauthorised(verdict)
            verdict = await self._look_again(parts[0], text, now_ms)
        return Bearer(verdict)

    async def _look_again(self, token_id: str, text: str, now_ms: int) -> Viewer:
        """Another replica may have made the token a moment ago: ask the store itself.

        At most so often a second, or strangers could load the store with made-up tokens.
        """
        second = int(self._services.clock.monotonic_s())
        self._looked = self._looked + 1 if second == self._second else 1
        self._second = second
        if self._looked > LOOK_AGAIN_PER_S:
            raise unauthorised("the token is not known here")
        kv = await self._services.store.get(keys.token(token_id))
        value = kv.value if kv else None
        verdict = TokenBook(lambda _: value).verify(text, now_ms)
        if isinstance(verdict, str):
            raise unauthorised(verdict)
        return verdict

    def ticket(self, header: str) -> TicketHolder:
        """The attempt behind a ticket, as long as the broker's own books know it.

        The ticket's age does not matter here: results of a job that ran for days come back
        under the ticket it began with. One that only prepares is good for its time. Raises
        Problem 401.
        """
        raw = parse_ticket_header(header)
        if raw is None:
            raise unauthorised("the ticket is malformed")
        ticket = read_ticket(raw, self._services.keyring.known_ticket_keys)
        if isinstance(ticket, Refusal):
            raise unauthorised(ticket.text)
        job = self._services.projection.job(ticket.job)
        attempt: Attempt | None = None
        if is_prepare_uid(ticket.uid):
            if job is None or job.phase is JobPhase.ENDED:
                raise unauthorised(f"{ticket.job} is over: nothing is to be prepared for it")
            if self._services.clock.now_ms() > ticket.not_after_ms:
                raise unauthorised(f"the time to prepare for {ticket.job} is over")
        else:
            attempt = job.attempt(ticket.uid) if job is not None else None
            if attempt is None or attempt.cluster != ticket.cluster:
                at = ticket.cluster
                raise unauthorised(f"attempt {ticket.uid} is over, or never was at {at}")
        if self._removed(ticket.cluster):
            raise unauthorised(f"cluster {ticket.cluster} was removed from this federation")
        return TicketHolder(ticket, attempt)

    def _removed(self, cluster: str) -> bool:
        value = self._services.projection.value(keys.cluster(cluster))
        record = pb.ClusterRecord.FromString(value) if value else None
        return record is not None and record.state == ClusterState.REMOVED
