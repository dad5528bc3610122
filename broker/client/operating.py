"""The part of the client that operators need: tenants, datasets, freezing, tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker.client.documents import Document, mapping, mappings, part
from broker.client.transport import Request, Transport


class Operating:
    """What is asked for with an operator's token; users may list their tenants and datasets."""

    transport: Transport

    async def tenants(self) -> Document:
        """The tenants one may see."""
        return mapping(await self.transport.send(Request("GET", "/tenants")))

    async def write_tenant(self, name: str, limits: Mapping[str, Any]) -> Document:
        """Write a tenant whole: what is left out has its default. For operators."""
        request = Request("PUT", f"/tenants/{part(name)}", document=dict(limits))
        return mapping(await self.transport.send(request))

    async def datasets(self) -> Document:
        """All datasets."""
        return mapping(await self.transport.send(Request("GET", "/datasets")))

    async def links(self) -> Document:
        """The ways of data between regions."""
        return mapping(await self.transport.send(Request("GET", "/links")))

    async def write_dataset(
        self, name: str, size: str, regions: Sequence[str], residency: Sequence[str] = ()
    ) -> Document:
        """Write a dataset whole. For operators."""
        body: Document = {"size": size, "regions": list(regions), "residency": list(residency)}
        request = Request("PUT", f"/datasets/{part(name)}", document=body)
        return mapping(await self.transport.send(request))

    async def remove_dataset(self, name: str) -> Document:
        """Forget a dataset; what it was. For operators. Raises Refused (404)."""
        return mapping(await self.transport.send(Request("DELETE", f"/datasets/{part(name)}")))

    async def freeze(self) -> Document:
        """Whether what runs is frozen, and what waits for an operator: {frozen, proposal}."""
        return mapping(await self.transport.send(Request("GET", "/freeze")))

    async def set_freeze(self, *, frozen: bool, why: str = "") -> Document:
        """Let nothing be stopped for others, or let it again. For operators."""
        body: Document = {"frozen": frozen, **({"why": why} if why else {})}
        return mapping(await self.transport.send(Request("PUT", "/freeze", document=body)))

    async def approve(self, cycle: str, why: str = "") -> Document:
        """Let a cycle stop what it proposed, once. Raises Refused (409) where it does not wait."""
        body: Document = {"cycle": cycle, **({"why": why} if why else {})}
        request = Request("POST", "/freeze/approve", document=body, repeatable=True)
        return mapping(await self.transport.send(request))

    async def tokens(self) -> list[Document]:
        """Tokens without their secrets. For operators."""
        answer = await self.transport.send(Request("GET", "/tokens"))
        return mappings(mapping(answer).get("tokens"))

    async def make_token(
        self, subject: str, tenants: Sequence[str], *, role: str = "user", ttl: str | None = None
    ) -> Document:
        """A new token: {id, token}; its secret is shown this once. For operators."""
        body: Document = {"subject": subject, "role": role, "tenants": list(tenants)}
        body |= {"ttl": ttl} if ttl else {}
        request = Request("POST", "/tokens", document=body, repeatable=False)
        return mapping(await self.transport.send(request))

    async def revoke_token(self, token_id: str) -> Document:
        """Make a token open nothing any more. For operators."""
        request = Request("DELETE", f"/tokens/{part(token_id)}")
        return mapping(await self.transport.send(request))
