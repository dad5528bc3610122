"""What a site did for an attempt as spans below those the broker tells. Pure."""

from __future__ import annotations

from federation.traces import Attribute, Span, parse_traceparent, span_id_of
from regional_agent.session.events import Ended, Event, Prepared, Started
from regional_agent.session.held import Held


def site_span(event: Event, held: Held, cluster: str) -> Span | None:
    """The span that ends with an event: staging, the local queue, the run as the site saw it."""
    context = parse_traceparent(held.traceparent)
    if context is None or not context.sampled:
        return None
    said, ended_ms = event.said, event.at_ms
    about: dict[str, Attribute] = {
        "tradewind.job": held.job,
        "tradewind.attempt": held.uid,
        "tradewind.cluster": cluster,
        "tradewind.epoch": event.epoch,
    }
    error = ""
    if isinstance(said, Prepared):
        name, below, begun_ms = "stage", "prepare", ended_ms - said.prepare_ms
        about["tradewind.fetched_bytes"] = said.fetched_bytes
        about["tradewind.cached_bytes"] = said.cached_bytes
    elif isinstance(said, Started):
        name, below, begun_ms = "start", "launch", ended_ms - said.launch_ms
        about["tradewind.local_id"] = said.local_id
    elif isinstance(said, Ended) and held.started_ms:
        name, below, begun_ms = "execute", "run", held.started_ms
        about["tradewind.outcome"] = said.kind
        about["tradewind.exit_code"] = said.exit_code
        error = "" if said.kind in ("succeeded", "cancelled") else said.kind
    else:
        return None
    return Span(
        name,
        context.trace_id,
        span_id_of(held.uid, name),
        span_id_of(held.uid, below),
        begun_ms,
        max(ended_ms, begun_ms),
        about,
        error=error,
    )
