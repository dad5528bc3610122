"""What a step asks of the shell, once the new job is durable.

Sending to a site is not among them: an attempt whose confirmed phase lags behind what is desired
is re-driven from the record itself (`reconcile.commands_for`), so there is nothing to lose.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Audit:
    """Write down who or what moved which record from where to where, and why."""

    subject: str
    actor: str
    what: str
    before: str
    after: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class CloseAttempt:
    """An attempt ended: fetch its logs, write it to the ledger, then let the site forget it."""

    uid: str


@dataclass(frozen=True, slots=True)
class CloseJob:
    """A job ended: write it to the ledger; it leaves etcd some minutes later."""

    job: str


Command = Audit | CloseAttempt | CloseJob
