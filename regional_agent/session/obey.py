"""Commands of the broker: each is carried out once, and answered every time it comes."""

from __future__ import annotations

from federation.ids import is_prepare_uid
from federation.jobs import JobSpec
from federation.refusals import Refusal, RefusalCode
from federation.site_limits import refuses_image
from federation.tickets import Ticket
from regional_agent.session.actions import (
    Actions,
    Cancel,
    Clear,
    Complain,
    Launch,
    Look,
    Reslice,
    Retake,
    Take,
    Warm,
    Withdraw,
)
from regional_agent.session.admission import (
    Admitted,
    SiteRules,
    admit,
    check_ticket,
    not_taken,
    read_spec,
    request_of,
)
from regional_agent.session.commands import (
    Command,
    Dispatch,
    Forget,
    Placement,
    Prepare,
    SetSlice,
    Stop,
)
from regional_agent.session.events import Accepted, Ended, Refused
from regional_agent.session.held import Held
from regional_agent.session.inputs import Looked, Now
from regional_agent.session.ledger import Reservation
from regional_agent.session.site import Site
from regional_agent.session.site_policy import Asked, refuses

_NOWHERE = Placement(pool="")


def obey(site: Site, command: Command, now: Now, do: Actions) -> None:
    """Carry out one command; commands come in their order."""
    if isinstance(command, Dispatch):
        _dispatch(site, command, now, do)
    elif isinstance(command, Stop):
        _stop(site, command, now, do)
    elif isinstance(command, SetSlice):
        _set_slice(site, command, now, do)
    elif isinstance(command, Prepare):
        _prepare(site, command, now, do)
    else:
        _forget(site, command, do)
    if command.dispatch_seq > site.dispatch_seq:
        site.dispatch_seq = command.dispatch_seq
        site.changes += 1
        do.writes.append(Take(command.dispatch_seq))


# Dispatch --------------------------------------------------------------------------------------


def _dispatch(site: Site, command: Dispatch, now: Now, do: Actions) -> None:
    if is_prepare_uid(command.uid):
        do.effects.append(Complain(f"{command.uid}: a ticket to prepare launches nothing"))
        return
    ticket = check_ticket(
        command, site.rules, site.keys, now_ms=now.broker_ms, epoch_min=site.epoch
    )
    held = site.attempts.get(command.uid)
    if isinstance(ticket, Refusal):
        _untrusted(site, command, ticket, now, do)
        return
    if ticket.epoch > site.epoch:
        site.epoch = ticket.epoch
        do.writes.append(Take(epoch=ticket.epoch))
    if held is not None:
        _again(site, held, command, ticket, now, do)
    elif command.adopt_only:
        site.looking[command.uid] = command
        do.effects.append(Look(command.uid))
    else:
        _take_on(site, command, ticket, now, do)


def _untrusted(site: Site, command: Dispatch, refusal: Refusal, now: Now, do: Actions) -> None:
    """A stale leader is told so beside the events: it has no say in what becomes of the attempt.
    What is known already is not disturbed by a bad ticket either."""
    if refusal.code is RefusalCode.STALE_EPOCH or command.uid in site.attempts:
        do.effects.append(Complain(refusal.text))
        return
    _refuse(site, command, None, refusal, now, do)


def _again(
    site: Site, held: Held, command: Dispatch, ticket: Ticket, now: Now, do: Actions
) -> None:
    """The same attempt once more: never a second launch."""
    if ticket.epoch > held.epoch:
        held.epoch, held.ticket = ticket.epoch, command.ticket
        held.dispatch_seq = max(held.dispatch_seq, command.dispatch_seq)
        do.writes.append(Retake(held.uid, held.dispatch_seq, held.epoch, held.ticket))
    if held.last_seq > site.acked:
        return
    already = held.last_seq
    if not isinstance(held.last, Refused):
        site.tell(held, _accepted(command.dispatch_seq, held.reservation), now.broker_ms, do)
        held.last_seq = already
    site.repeat(held, now, do)


def _take_on(site: Site, command: Dispatch, ticket: Ticket, now: Now, do: Actions) -> None:
    admitted = admit(command, ticket, site.rules)
    if isinstance(admitted, Refusal):
        _refuse(site, command, ticket, admitted, now, do)
        return
    forbidden = _forbidden(site, command, admitted, now)
    if forbidden is not None:
        _refuse(site, command, ticket, forbidden, now, do)
        return
    request = request_of(command.placement, admitted.spec)
    queued = command.placement.queued
    take = site.ledger.join_queue if queued else site.ledger.reserve
    full = queue_full(site, request.width) if queued else None
    reserved = full or take(command.uid, request)
    if isinstance(reserved, Refusal):
        _refuse(site, command, ticket, reserved, now, do)
        return
    site.ledger, reservation = reserved
    site.changes += 1
    held = site.hold(command, ticket, now)
    held.spec, held.reservation = admitted.spec, reservation
    held.contact_s = command.contact_s
    site.write_acceptance(held, command, do)
    site.tell(held, _accepted(command.dispatch_seq, reservation), now.broker_ms, do)
    launch(held, do, look_first=site.look_first)


def queue_full(site: Site, copies: int = 1) -> Refusal | None:
    """Why so many more may not wait here."""
    waiting, most = sum(held.waiting_copies for held in site.live), site.max_queued
    if waiting + copies <= most:
        return None
    has = f"{waiting} of {most} wait already (max_queued)" if most else "none may wait"
    needs = "a place in the queue" if copies == 1 else f"{copies} places in the queue"
    return Refusal(RefusalCode.QUEUE_FULL, site.rules.cluster, needs, has)


def _forbidden(
    site: Site, command: Dispatch, admitted: Admitted, now: Now
) -> Refusal | None:
    """Why the site's people do not want it now."""
    closed = not_taken(admitted.ticket, site.rules)
    if closed is not None:
        return closed
    request = request_of(command.placement, admitted.spec)
    asked = Asked(admitted.ticket, admitted.spec, command.placement, request)
    return refuses(site.rules.policy, site.rules.cluster, asked, site.standing(now.broker_ms))


def launch(held: Held, do: Actions, *, staged: bool = False, look_first: bool = False) -> None:
    """Ask for the launch of an accepted attempt."""
    assert held.spec is not None and held.reservation is not None, "accepted to be run"
    do.effects.append(
        Launch(
            uid=held.uid,
            job=held.job,
            tenant=held.tenant,
            ticket=held.ticket,
            spec=held.spec,
            placement=held.placement,
            reservation=held.reservation,
            staged=staged,
            look_first=look_first,
            traceparent=held.traceparent,
            contact_s=held.contact_s,
        )
    )


def _refuse(
    site: Site,
    command: Dispatch,
    ticket: Ticket | None,
    refusal: Refusal,
    now: Now,
    do: Actions,
) -> None:
    """The tombstone keeps the answer the same when the command comes again."""
    held = site.hold(command, ticket, now)
    site.write_acceptance(held, command, do)
    said = Refused(command.dispatch_seq, refusal.code, refusal.text)
    site.end(held, said, now.broker_ms, do)


def _accepted(dispatch_seq: int, reservation: Reservation | None) -> Accepted:
    places = reservation.places if reservation else ()
    nodes = dict.fromkeys(f"{place.pool}/{place.node}" for place in places)
    return Accepted(dispatch_seq, tuple(nodes))


REGISTRY = "docker://"


# Prepare ---------------------------------------------------------------------------------------


def _prepare(site: Site, command: Prepare, now: Now, do: Actions) -> None:
    """Warm the cache with what the spec names, if the ticket is for that and this site would
    take the job. Nothing of it is remembered: lost, it costs time when the job comes."""
    ticket = check_ticket(
        command, site.rules, site.keys, now_ms=now.broker_ms, epoch_min=site.epoch
    )
    if isinstance(ticket, Refusal):
        do.effects.append(Complain(ticket.text))
        return
    if command.uid != f"{ticket.job}-0":
        do.effects.append(Complain(f"{command.uid}: the ticket is not one to prepare"))
        return
    admitted = read_spec(command, ticket)
    if isinstance(admitted, Refusal):
        do.effects.append(Complain(admitted.text))
        return
    closed = not_taken(ticket, site.rules)
    if closed is not None:
        do.effects.append(Complain(closed.text))
        return
    blobs = {file.sha256: file.size_bytes for file in admitted.spec.files}
    if admitted.spec.workdir is not None:
        blobs[admitted.spec.workdir.archive] = admitted.spec.workdir.size_bytes
    image = _image_ahead(admitted.spec, site.rules)
    if blobs or image:
        do.effects.append(Warm(ticket.job, command.ticket, tuple(blobs.items()), image))


def _image_ahead(spec: JobSpec, rules: SiteRules) -> str:
    """The image of a registry that the site would run; an archive comes with the job's files."""
    image = spec.image or ""
    may = "images" in rules.features and image.startswith(REGISTRY)
    if not may or refuses_image(rules.policy.limits, rules.cluster, image) is not None:
        return ""
    return image


# Adoption --------------------------------------------------------------------------------------


def looked(site: Site, found: Looked, now: Now, do: Actions) -> None:
    """The scheduler's answer about an attempt this journal does not know."""
    if found.uid not in site.looking:
        return
    command = site.looking.pop(found.uid)
    if found.uid in site.attempts:
        return
    if not found.local_id:
        gone = Dispatch(0, found.uid, b"", b"", _NOWHERE)
        _lost(site, command or gone, now, do)
        return
    if command is None:
        do.effects.append(Complain(f"{found.uid} runs here, but this journal does not know it"))
        return
    ticket = check_ticket(
        command, site.rules, site.keys, now_ms=now.broker_ms, epoch_min=site.epoch
    )
    if isinstance(ticket, Refusal):
        do.effects.append(Complain(ticket.text))
        return
    _adopt(site, command, ticket, now, do)


def _adopt(site: Site, command: Dispatch, ticket: Ticket, now: Now, do: Actions) -> None:
    admitted = admit(command, ticket, site.rules)
    held = _hold_earlier(site, command, ticket, now)
    held.spec = None if isinstance(admitted, Refusal) else admitted.spec
    take = site.ledger.join_queue if command.placement.queued else site.ledger.reserve
    reserved = take(command.uid, request_of(command.placement, held.spec))
    if not isinstance(reserved, Refusal):  # it runs, whether the ledger has room or not
        site.ledger, held.reservation = reserved
        site.changes += 1
    site.write_acceptance(held, command, do)
    site.tell(held, _accepted(command.dispatch_seq, held.reservation), now.broker_ms, do)
    held.state = "submitted"
    site.remember(held, now, do)


def _hold_earlier(site: Site, command: Dispatch, ticket: Ticket | None, now: Now) -> Held:
    """Hold what an earlier journal accepted: nobody knows when, so its start is told as the
    scheduler knows it and not as of now."""
    held = site.hold(command, ticket, now)
    held.accepted_ms = 0
    return held


def _lost(site: Site, command: Dispatch, now: Now, do: Actions) -> None:
    held = site.hold(command, None, now)
    site.write_acceptance(held, command, do)
    text = f"neither this agent nor its scheduler knows {command.uid}"
    site.end(held, Ended("lost", text=text), now.broker_ms, do)


# Stop, slices, forget --------------------------------------------------------------------------


def _stop(site: Site, command: Stop, now: Now, do: Actions) -> None:
    held = site.attempts.get(command.uid)
    if held is None:
        # The scheduler is asked too: it may run what a lost journal knew of, or have seen its
        # end already, of which it tells no more unless it is asked.
        unknown = Dispatch(command.dispatch_seq, command.uid, b"", b"", _NOWHERE)
        held = _hold_earlier(site, unknown, None, now)
        site.write_acceptance(held, unknown, do)
        do.effects.append(Look(held.uid))
    if not held.live:
        site.repeat(held, now, do)
        return
    if command.unless_started:
        _withdraw(site, held, now, do)
        return
    if held.stop_why != command.why:
        held.stop_why = command.why
        site.remember(held, now, do)
    do.effects.append(Cancel(held.uid, command.grace_s))


def _withdraw(site: Site, held: Held, now: Now, do: Actions) -> None:
    """Take back what waits; that it has begun is what the broker has to hear instead."""
    if held.started or held.stop_why:
        site.repeat(held, now, do)
        return
    if not held.withdrawn:
        held.withdrawn = True
        site.remember(held, now, do)
    do.effects.append(Withdraw(held.uid))


def _set_slice(site: Site, command: SetSlice, now: Now, do: Actions) -> None:
    held = site.attempts.get(command.uid)
    if held is None:
        site.looking.setdefault(command.uid, None)
        do.effects.append(Look(command.uid))
        return
    if not held.live:
        site.repeat(held, now, do)
        return
    told = held.slice_set
    if told is not None and told.dispatch_seq >= command.dispatch_seq:
        if held.last_seq <= site.acked:
            site.tell(held, told, now.broker_ms, do)
        return
    # Never wider than what is reserved: a lane more would be capacity nobody promised.
    reserved = held.reservation.request.width if held.reservation else command.width
    width = max(1, min(command.width, reserved))
    do.effects.append(Reslice(held.uid, command.dispatch_seq, command.tasks, width))


def _forget(site: Site, command: Forget, do: Actions) -> None:
    held = site.attempts.get(command.uid)
    if held is not None and not held.live and held.last_seq <= site.acked:
        do.effects.append(Clear(held.uid))
