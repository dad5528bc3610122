"""What every handler is given beside its request."""

from __future__ import annotations

from dataclasses import dataclass

from broker.api.auth import Auth
from broker.api.catalog import Catalog
from broker.api.events_hub import EventsHub
from broker.api.intents import Intents
from broker.api.services import Services
from broker.api.streams import Streams
from broker.control.submission import Submissions
from broker.control.tokens import TokenBook


@dataclass(frozen=True, slots=True)
class Api:
    """The parts of one API server."""

    services: Services
    submissions: Submissions
    auth: Auth
    catalog: Catalog
    intents: Intents
    hub: EventsHub
    streams: Streams

    @classmethod
    def build(cls, services: Services) -> Api:
        """Wire the parts together; starts nothing."""
        return cls(
            services=services,
            submissions=services.submissions(),
            auth=Auth(services, TokenBook(services.projection.value)),
            catalog=Catalog(services.projection, services.ledger, services.store),
            intents=Intents(services.store, services.projection, services.lanes),
            hub=EventsHub(
                services.store, services.projection, services.settings.events_kept
            ),
            streams=Streams(services.settings.streams_max),
        )
