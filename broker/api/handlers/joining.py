"""How sites come in: the CA to pin, enrolment, renewal, and why a session was refused.

These take no bearer token: what is sent proves itself.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from aiohttp import web

from broker.api.problems import Problem, field_problem
from broker.api.routes import Call, answer
from broker.control.enrolment import EnrolmentAnswer
from broker.control.enrolment_rules import EnrolmentCode, EnrolmentRefused
from federation.certificates import ca_hash, ca_hashes

_STATUS: Mapping[EnrolmentCode, int] = {
    EnrolmentCode.REQUEST_INVALID: 422,
    EnrolmentCode.TOKEN_USED: 409,
}


async def ca(call: Call) -> web.Response:
    """GET /v1/ca."""
    bundle = call.api.services.keyring.ca_bundle
    return answer(
        200,
        {
            "ca_pem": bundle.decode("ascii"),
            "ca_hash": ca_hash(bundle),
            "ca_hashes": list(ca_hashes(bundle)),
        },
    )


async def enrol(call: Call) -> web.Response:
    """POST /v1/enrol."""
    enrolment = call.api.services.enrolment
    return _signed(await enrolment.enrol(call.body.token, _pem(call.body.csr, "csr")))


async def renew(call: Call) -> web.Response:
    """POST /v1/renew."""
    try:
        proof = base64.b64decode(call.body.proof, validate=True)
    except (binascii.Error, ValueError):
        raise field_problem(422, "bad_body", "proof", "not base64", "encode it") from None
    certificate = _pem(call.body.certificate, "certificate")
    enrolment = call.api.services.enrolment
    return _signed(await enrolment.renew(certificate, _pem(call.body.csr, "csr"), proof))


async def session_check(call: Call) -> web.Response:
    """POST /v1/session-check."""
    certificate = _pem(call.body.certificate, "certificate")
    verdict = await call.api.services.enrolment.session_check(certificate)
    return answer(200, {"ok": verdict.ok, "code": verdict.code, "reason": verdict.reason})


def _pem(text: str, path: str) -> bytes:
    if not text.isascii():
        raise field_problem(422, "bad_body", path, "not PEM", "send the PEM text as it is")
    return text.encode("ascii")


def _signed(signed: EnrolmentAnswer | EnrolmentRefused) -> web.Response:
    if isinstance(signed, EnrolmentRefused):
        raise Problem(_STATUS.get(signed.code, 403), signed.code.value, signed.text)
    return answer(
        200,
        {
            "certificate_pem": signed.certificate_pem.decode("ascii"),
            "ca_pem": signed.ca_pem.decode("ascii"),
            "cluster": signed.cluster,
            "region": signed.region,
            "session_addresses": list(signed.session_addresses),
            "api_url": signed.api_url,
        },
    )
