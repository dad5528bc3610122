"""Enrolment, the site's half: join with an invitation, renew, and ask why a session is refused.

Everything goes to the broker's HTTPS API. The first answer, the federation's CA, comes over a
connection that trusts nobody and is believed only if it has the hash the invitation named;
nothing secret is sent before, and from then on that CA alone is trusted.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from federation.certificates import (
    PEM_BYTES_MAX,
    CertificateError,
    ca_hashes,
    make_csr,
    prove,
)
from federation.tls import pinned_context, unverified_context
from regional_agent.identity import (
    Identity,
    IdentityError,
    Issued,
    has_identity,
    install,
    load_identity,
    requested_key,
)

TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 4 * PEM_BYTES_MAX

_HASH = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


class EnrolError(Exception):
    """No identity came of it. `text` is one line; `retry`: the same may succeed later."""

    def __init__(self, code: str, text: str, *, retry: bool) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.retry = retry


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the broker thinks of this agent's certificate."""

    ok: bool
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Door:
    """The broker's API: its URL, and the HTTP proxy (CONNECT) to go through, empty for none."""

    url: str
    proxy: str = ""


async def join(
    door: Door, token: str, ca_hash: str, state_dir: Path, *, replace: bool = False
) -> Identity:
    """Become the agent of the cluster an invitation names.

    Repeating it after a lost answer is safe: the same key asks again. `replace` gives up an
    identity this state directory already holds. Raises EnrolError, IdentityError.
    """
    pinned = _HASH.fullmatch(ca_hash.strip().lower())
    if pinned is None:
        raise EnrolError("bad_ca_hash", "the CA hash is not 64 hex digits", retry=False)
    if has_identity(state_dir) and not replace:
        known = load_identity(state_dir)
        raise EnrolError(
            "already_joined",
            f"this agent is already {known.cluster}; leave first, or use another state directory",
            retry=False,
        )
    ca_pem = await _pinned_ca(door, pinned[1])
    key_pem = requested_key(state_dir)
    csr = make_csr(key_pem, "agent").decode("ascii")
    context = pinned_context(ca_pem.decode("ascii"))
    answer = await _post(door, "/v1/enrol", {"token": token, "csr": csr}, context)
    return install(state_dir, key_pem, _issued(answer, door))


async def renew_if_due(
    state_dir: Path, *, now_ms: int, door: Door | None = None
) -> Identity | None:
    """Renew from two thirds of the certificate's life on; None when it is not due.

    Also up to 30 days after it expired. `door` defaults to the API the broker named. Raises
    EnrolError, IdentityError.
    """
    identity = load_identity(state_dir)
    if now_ms < identity.facts.renewal_due_ms:
        return None
    return await renew(state_dir, door=door)


async def renew(state_dir: Path, *, door: Door | None = None) -> Identity:
    """Renew now, for a new key. Raises EnrolError, IdentityError."""
    identity = load_identity(state_dir)
    way = door or Door(identity.api_url)
    key_pem = requested_key(state_dir)
    csr_pem = make_csr(key_pem, "agent")
    body = {
        "certificate": identity.credential.certificate_pem.decode("ascii"),
        "csr": csr_pem.decode("ascii"),
        "proof": base64.b64encode(prove(identity.credential.key_pem, csr_pem)).decode("ascii"),
    }
    context = pinned_context(identity.ca_pem.decode("ascii"))
    answer = await _post(way, "/v1/renew", body, context)
    issued = _issued(answer, way)
    if issued.cluster != identity.cluster:
        raise EnrolError(
            "bad_answer",
            f"the broker renewed cluster {issued.cluster}, this one is {identity.cluster}",
            retry=False,
        )
    return install(state_dir, key_pem, issued)


async def session_check(identity: Identity, *, door: Door | None = None) -> Verdict:
    """Why a session is refused: gRPC shows a refused peer no reason. Raises EnrolError."""
    body = {"certificate": identity.credential.certificate_pem.decode("ascii")}
    context = pinned_context(identity.ca_pem.decode("ascii"))
    said = await _post(door or Door(identity.api_url), "/v1/session-check", body, context)
    return Verdict(
        ok=said.get("ok") is True,
        code=_line(said.get("code")),
        reason=_line(said.get("reason")),
    )


# Inside ---------------------------------------------------------------------------------------


async def _pinned_ca(door: Door, wanted: str) -> bytes:
    """The CA with this hash; of a bundle only that one, whatever else it was sent along with."""
    raw = await _ask("GET", door, "/v1/ca", None, unverified_context())
    try:
        found = ca_hashes(str(_object(raw).get("ca_pem", "")).encode("utf-8", "replace"))
    except CertificateError as problem:
        raise EnrolError(
            "bad_answer", f"{door.url} answers with no CA: {problem}", retry=False
        ) from problem
    if wanted not in found:
        raise EnrolError(
            "ca_mismatch",
            f"{door.url} shows CA {next(iter(found))}, the invitation names {wanted}: this is "
            "another server, or somebody is in between; nothing secret was sent",
            retry=False,
        )
    return found[wanted]


async def _post(
    door: Door, path: str, body: Mapping[str, str], context: ssl.SSLContext
) -> dict[str, Any]:
    return _object(await _ask("POST", door, path, body, context))


async def _ask(
    method: str, door: Door, path: str, body: Mapping[str, str] | None, context: ssl.SSLContext
) -> bytes:
    """One request; the body of a 2xx answer. Raises EnrolError."""
    url = URL(door.url)
    if url.scheme != "https" or not url.host:
        raise EnrolError("bad_url", f"{door.url!r} is not an https:// URL", retry=False)
    connector = aiohttp.TCPConnector(ssl=context)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.request(
                method,
                url.join(URL(path)),
                json=body,
                proxy=door.proxy or None,
                allow_redirects=False,
            ) as response,
        ):
            raw = await _bounded(response.content)
            status = response.status
    except aiohttp.ClientConnectorCertificateError as problem:
        raise EnrolError(
            "tls_refused",
            f"{door.url} does not show a certificate of the pinned CA for this host "
            f"({_line(problem.certificate_error)}); nothing was sent",
            retry=False,
        ) from problem
    except (aiohttp.ClientError, TimeoutError) as problem:
        why = _line(problem) or type(problem).__name__
        raise EnrolError("unreachable", f"cannot reach {door.url}: {why}", retry=True) from problem
    if 200 <= status < 300 and len(raw) <= ANSWER_BYTES_MAX:
        return raw
    raise _refusal(door, status, raw)


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    """All of a body, or one byte more than an answer may have."""
    try:
        return await content.readexactly(ANSWER_BYTES_MAX + 1)
    except asyncio.IncompleteReadError as ended:
        return ended.partial


def _refusal(door: Door, status: int, raw: bytes) -> EnrolError:
    """An answer that is none, as one line: the broker's own words where there are any."""
    try:
        said = _object(raw)
    except EnrolError:
        said = {}
    text = _line(said.get("detail") or said.get("title")) or f"{door.url} answered {status}"
    code = _line(said.get("code")) or f"http_{status}"
    return EnrolError(code, text, retry=status in (408, 429) or status >= 500)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise EnrolError("bad_answer", "the broker's answer is not a JSON object", retry=False)
    return said


def _issued(said: Mapping[str, Any], door: Door) -> Issued:
    """The answer to a request for a certificate; `door` where the broker names no API."""
    texts = [said.get(k) for k in ("certificate_pem", "ca_pem", "cluster", "region")]
    addresses = said.get("session_addresses")
    if not all(isinstance(t, str) and t for t in texts) or not isinstance(addresses, list):
        raise EnrolError("bad_answer", "the broker's answer lacks a certificate", retry=False)
    certificate, ca, cluster, region = map(str, texts)
    return Issued(
        certificate_pem=certificate.encode("utf-8", "replace"),
        ca_pem=ca.encode("utf-8", "replace"),
        cluster=cluster,
        region=region,
        session_addresses=tuple(map(str, addresses)),
        api_url=str(said.get("api_url") or door.url),
    )


def _line(value: object) -> str:
    """Text from elsewhere as one line of bounded length."""
    return " ".join(str(value).split())[:400] if value is not None else ""


__all__ = [
    "Door",
    "EnrolError",
    "IdentityError",
    "Verdict",
    "join",
    "renew",
    "renew_if_due",
    "session_check",
]
