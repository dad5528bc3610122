"""Keeping a session up: whom to dial, how long to wait, and what to say when it does not work.

Nothing at the site waits for this: what runs goes on, what was accepted starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from federation.environment import Rng
from federation.handshake.frames import SessionCode
from federation.handshake.values import Over
from federation.heeding import heed_cancellation
from regional_agent.enrol import EnrolError, Verdict
from regional_agent.identity import Identity
from regional_agent.link import Link, Parts

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 15.0
PERSON_NEEDED_S = 60.0
PATIENT_TRIES = 4
GOOD_SESSION_S = 10.0
REDIRECT_S = 0.05
ASK_WHY_EVERY_S = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LinkState:
    """How the session stands, for people. `since_ms`: since when by the site's clock."""

    connected: bool
    address: str
    since_ms: int
    code: str
    reason: str


class Dialler:
    """Dials until stopped. `check` asks the broker over HTTPS why it lets nobody in."""

    def __init__(
        self,
        parts: Parts,
        identity: Identity,
        rng: Rng,
        check: Callable[[Identity], Awaitable[Verdict]],
    ) -> None:
        self._parts = parts
        self._identity = identity
        self._rng = rng
        self._check = check
        self._addresses: list[str] = list(identity.session_addresses)
        self._redirect = ""
        self._failures = 0
        self._renewed = asyncio.Event()
        self._asked_s = float("-inf")
        self.state = LinkState(
            connected=False, address="", since_ms=parts.clock.now_ms(), code="", reason="dialling"
        )
        self.session_opened = asyncio.Event()
        self.news = asyncio.Event()
        """Set whenever `state` changes."""

    @property
    def connected(self) -> bool:
        """Whether a session stands."""
        return self.state.connected

    @property
    def identity(self) -> Identity:
        """The identity in use."""
        return self._identity

    def renewed(self, identity: Identity) -> None:
        """Dial with this from now on; a second stream replaces the one that stands."""
        self._identity = identity
        self._renewed.set()

    def know(self, addresses: Sequence[str]) -> None:
        """Addresses from earlier, in the order to try them."""
        self._addresses = list(dict.fromkeys([*addresses, *self._addresses]))

    async def run(self) -> None:
        """For ever."""
        while True:
            link = Link(self._parts, self._address(), self._identity)
            over = await link.open()
            began_s = self._parts.clock.monotonic_s()
            if over is None:
                over = await self._serve(link)
                if self._parts.clock.monotonic_s() - began_s > GOOD_SESSION_S:
                    self._failures = 0
            else:
                over = await self._explained(over)
                self._rotate(link.address)
            heed_cancellation()
            self._note(over, link.address)
            await self._pause(over)

    async def _serve(self, link: Link) -> Over:
        self._up(link)
        serving, tried = asyncio.create_task(link.serve()), link.identity
        try:
            while True:
                if self._identity is not tried:
                    tried = self._identity
                    second = Link(self._parts, link.address, tried)
                    # One that does not come about is no loss: the first stands until its
                    # certificate ends, and the next is dialled with the new one.
                    if await second.open() is None:
                        # The broker has ended the first by itself; its last word says nothing.
                        serving.cancel()
                        await asyncio.gather(serving, return_exceptions=True)
                        serving = asyncio.create_task(second.serve())
                        self._up(second)
                self._renewed.clear()
                renewal = asyncio.create_task(self._renewed.wait())
                await asyncio.wait({serving, renewal}, return_when=asyncio.FIRST_COMPLETED)
                renewal.cancel()
                if serving.done():
                    return serving.result()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    # Whom to dial ---------------------------------------------------------------------------------

    def _address(self) -> str:
        if self._redirect:
            address, self._redirect = self._redirect, ""
            return address
        return self._addresses[0]

    def _rotate(self, failed: str) -> None:
        """What failed is tried last."""
        if failed in self._addresses:
            self._addresses.remove(failed)
            self._addresses.append(failed)

    def _up(self, link: Link) -> None:
        session = link.session
        assert session is not None, "it stands"
        others = [a for a in session.addresses if a != link.address]
        self._addresses = list(dict.fromkeys([link.address, *others])) or [link.address]
        self._set(connected=True, address=link.address, code="", reason="")
        self.session_opened.set()
        _log.info("session with %s stands, epoch %s", link.address, session.epoch)

    # When it does not work ------------------------------------------------------------------------

    async def _explained(self, over: Over) -> Over:
        """gRPC tells a peer that TLS refused nothing: the broker is asked over HTTPS."""
        if over.code != SessionCode.STREAM_LOST:
            return over
        now_s = self._parts.clock.monotonic_s()
        if now_s - self._asked_s < ASK_WHY_EVERY_S:
            return over
        self._asked_s = now_s
        try:
            verdict = await self._check(self._identity)
        except EnrolError:
            return over
        if verdict.ok:
            return over
        known = verdict.code in SessionCode.__members__.values()
        retry = SessionCode(verdict.code).retry if known else True
        return Over(verdict.code, verdict.reason, retry)

    def _note(self, over: Over, address: str) -> None:
        self._redirect = over.redirect
        if (over.code, over.text) != (self.state.code, self.state.reason):
            _log.warning("no session with %s: %s", address, over.text)
        self._set(connected=False, address=address, code=over.code, reason=over.text)

    def _set(self, *, connected: bool, address: str, code: str, reason: str) -> None:
        same = self.state.connected == connected
        since_ms = self.state.since_ms if same else self._parts.clock.now_ms()
        self.state = LinkState(connected, address, since_ms, code, reason)
        self.news.set()

    async def _pause(self, over: Over) -> None:
        self._failures += 1
        ceiling_s = min(BACKOFF_FIRST_S * 2.0 ** min(self._failures, 10), BACKOFF_MAX_S)
        wait_s = self._rng.uniform(BACKOFF_FIRST_S, max(BACKOFF_FIRST_S, ceiling_s))
        if over.redirect and self._failures <= PATIENT_TRIES:
            wait_s = REDIRECT_S
        elif not over.retry and self._failures > PATIENT_TRIES:
            wait_s = self._rng.uniform(PERSON_NEEDED_S / 2, PERSON_NEEDED_S)
        try:
            # A new certificate may be what was missing.
            async with asyncio.timeout(wait_s):
                await self._renewed.wait()
        except TimeoutError:
            return
        self._renewed.clear()
