"""Joining and renewing over real HTTPS: the pinned CA first, then the token; faults in a line."""

import asyncio
import base64
import json
import ssl
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from broker.control.enrolment import Enrolment, EnrolmentAnswer, Reach
from broker.state.backends.memory import MemoryStore
from broker.state.keyring import Keyring
from federation.certificates import bundle, ca_hash
from federation.issuing import make_ca
from federation.system import SystemClock, SystemIds
from federation.tls import renew_server_context, server_context
from regional_agent.enrol import Door, EnrolError, join, renew, renew_if_due, session_check
from regional_agent.identity import load_identity

HOUR_MS = 3_600_000


class Site:
    """A broker's enrolment behind real HTTPS, and what it was asked."""

    def __init__(self, tmp_path) -> None:
        self.clock = SystemClock()
        self.keyring = Keyring.open(
            tmp_path / "keys", "fed", now_ms=self.clock.now_ms(), ids=SystemIds()
        )
        self.url = ""
        self.asked: list[str] = []
        self.shown_ca = self.keyring.ca_bundle
        self.lose_answers = 0
        self.enrolment = Enrolment(
            MemoryStore(self.clock),
            self.keyring,
            self.clock,
            SystemIds(),
            lambda: Reach(("127.0.0.1:1",), self.url),
        )

    @property
    def ca_hash(self) -> str:
        return ca_hash(self.keyring.ca.certificate_pem)

    def show(self, *names: str) -> ssl.SSLContext:
        self.keyring.server(names or ("127.0.0.1",), now_ms=self.clock.now_ms())
        return server_context(self.keyring.server_file)

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext):
        app = web.Application()
        app.add_routes(
            [
                web.get("/v1/ca", self._ca),
                web.post("/v1/enrol", self._enrol),
                web.post("/v1/renew", self._renew),
                web.post("/v1/session-check", self._check),
            ]
        )
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        self.url = f"https://127.0.0.1:{port}"
        try:
            yield Door(self.url)
        finally:
            await runner.cleanup()

    async def invited(self) -> str:
        return await self.enrolment.invite("eu", "eu-west", 600, "ada")

    async def _ca(self, request):
        self.asked.append("ca")
        return web.json_response({"ca_pem": self.shown_ca.decode()})

    async def _enrol(self, request):
        self.asked.append("enrol")
        said = await request.json()
        return self._told(await self.enrolment.enrol(said["token"], said["csr"].encode()))

    async def _renew(self, request):
        self.asked.append("renew")
        said = await request.json()
        proof = base64.b64decode(said["proof"])
        answer = await self.enrolment.renew(
            said["certificate"].encode(), said["csr"].encode(), proof
        )
        return self._told(answer)

    async def _check(self, request):
        said = await request.json()
        verdict = await self.enrolment.session_check(said["certificate"].encode())
        return web.json_response({"ok": verdict.ok, "code": verdict.code, "reason": verdict.reason})

    def _told(self, answer):
        if self.lose_answers:
            self.lose_answers -= 1
            return web.Response(status=502, text="<html>bad gateway</html>")
        if not isinstance(answer, EnrolmentAnswer):
            problem = {"code": answer.code, "detail": answer.text}
            return web.Response(
                status=403, body=json.dumps(problem), content_type="application/problem+json"
            )
        return web.json_response(
            {
                "certificate_pem": answer.certificate_pem.decode(),
                "ca_pem": answer.ca_pem.decode(),
                "cluster": answer.cluster,
                "region": answer.region,
                "session_addresses": answer.session_addresses,
                "api_url": answer.api_url,
            }
        )


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


@pytest.fixture
def state_dir(tmp_path):
    return tmp_path / "agent"


async def failed(awaitable) -> EnrolError:
    with pytest.raises(EnrolError) as raised:
        await awaitable
    assert "\n" not in raised.value.text
    return raised.value


async def test_join_renew_and_check(site, state_dir):
    async with site.serving(site.show()) as door:
        made = await join(door, await site.invited(), "sha256:" + site.ca_hash.upper(), state_dir)
        assert (made.cluster, made.region, made.api_url) == ("eu", "eu-west", site.url)
        assert (await session_check(made)).ok
        assert await renew_if_due(state_dir, now_ms=made.facts.renewal_due_ms - 1) is None
        renewed = await renew_if_due(state_dir, now_ms=made.facts.renewal_due_ms)
        assert renewed is not None
        assert renewed.credential.key_pem != made.credential.key_pem
        assert load_identity(state_dir) == renewed
        await site.enrolment.revoke("eu")
        verdict = await session_check(renewed)
        assert (verdict.ok, verdict.code) == (False, "certificate_revoked")
        problem = await failed(renew(state_dir))
        assert (problem.code, problem.retry) == ("certificate_revoked", False)


async def test_nothing_secret_is_sent_to_a_server_with_another_ca(site, state_dir):
    token = await site.invited()
    async with site.serving(site.show()) as door:
        problem = await failed(join(door, token, "0" * 64, state_dir))
    assert problem.code == "ca_mismatch"
    assert "nothing secret was sent" in problem.text
    assert site.asked == ["ca"]
    assert not (state_dir / "identity").exists()


async def test_a_server_that_shows_the_right_ca_without_its_key_gets_nothing(
    site, tmp_path, state_dir
):
    """Somebody in between can repeat the CA, also beside one of his own; not answer under it."""
    thief = Keyring.open(tmp_path / "thief", "fed", now_ms=site.clock.now_ms(), ids=SystemIds())
    thief.server(["127.0.0.1"], now_ms=site.clock.now_ms())
    site.shown_ca = bundle(thief.ca.certificate_pem, site.keyring.ca.certificate_pem)
    async with site.serving(server_context(thief.server_file)) as door:
        problem = await failed(join(door, await site.invited(), site.ca_hash, state_dir))
    assert (problem.code, problem.retry) == ("tls_refused", False)
    assert site.asked == ["ca"]


async def test_a_certificate_for_another_host_is_refused(site, state_dir):
    async with site.serving(site.show("broker.example.org")) as door:
        problem = await failed(join(door, await site.invited(), site.ca_hash, state_dir))
    assert problem.code == "tls_refused"
    assert site.asked == ["ca"]


async def test_each_bad_token_is_told_in_the_brokers_words(site, tmp_path, state_dir):
    token = await site.invited()
    async with site.serving(site.show()) as door:
        problem = await failed(join(door, "tw-join_wrong", site.ca_hash, state_dir))
        assert (problem.code, problem.retry) == ("token_unknown", False)
        await join(door, token, site.ca_hash, state_dir)
        problem = await failed(join(door, token, site.ca_hash, tmp_path / "other"))
        assert problem.code == "token_used"
        assert "by another key" in problem.text


async def test_a_lost_answer_costs_nothing(site, state_dir):
    token = await site.invited()
    site.lose_answers = 1
    async with site.serving(site.show()) as door:
        problem = await failed(join(door, token, site.ca_hash, state_dir))
        assert (problem.code, problem.retry) == ("http_502", True)
        assert (await join(door, token, site.ca_hash, state_dir)).cluster == "eu"
        site.lose_answers = 1
        await failed(renew(state_dir))
        assert (await renew(state_dir)).cluster == "eu"


async def test_an_agent_that_joined_does_not_join_again_by_accident(site, state_dir):
    async with site.serving(site.show()) as door:
        await join(door, await site.invited(), site.ca_hash, state_dir)
        token = await site.invited()
        problem = await failed(join(door, token, site.ca_hash, state_dir))
        assert problem.code == "already_joined"
        assert (await join(door, token, site.ca_hash, state_dir, replace=True)).cluster == "eu"


async def test_a_replaced_ca_reaches_agents_by_renewal_and_none_is_locked_out(site, state_dir):
    now_ms = site.clock.now_ms()
    context = site.show()
    async with site.serving(context) as door:
        await join(door, await site.invited(), site.ca_hash, state_dir)
        site.keyring.introduce_ca(now_ms=now_ms)
        await renew(state_dir)
        site.keyring.promote_ca()
        site.keyring.server(("127.0.0.1",), now_ms=now_ms)
        renew_server_context(context, site.keyring.server_file)
        renewed = await renew(state_dir)
        site.keyring.retire_ca()
        assert (await renew(state_dir)).cluster == "eu"
        assert (await session_check(renewed)).ok


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:1", "ftp://x", ""])
async def test_only_https_is_spoken(url, state_dir):
    problem = await failed(join(Door(url), "t", "0" * 64, state_dir))
    assert problem.code == "bad_url"


async def test_a_broker_that_is_not_there_is_worth_another_try(state_dir):
    problem = await failed(join(Door("https://127.0.0.1:9"), "t", "0" * 64, state_dir))
    assert (problem.code, problem.retry) == ("unreachable", True)


async def test_a_hash_that_is_none_is_told_before_anything_is_dialled(state_dir):
    problem = await failed(join(Door("https://127.0.0.1:9"), "t", "abc", state_dir))
    assert problem.code == "bad_ca_hash"


@pytest.mark.parametrize("shown", [b"", b"nonsense", b"{", b'{"ca_pem": 7}', b"{}", b"x" * 500_000])
async def test_an_answer_that_is_no_ca_is_told(site, state_dir, shown):
    async def ca(request):
        return web.Response(body=shown)

    app = web.Application()
    app.add_routes([web.get("/v1/ca", ca)])
    runner = web.AppRunner(app)
    await runner.setup()
    tcp = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=site.show())
    await tcp.start()
    port = tcp._server.sockets[0].getsockname()[1]
    try:
        door = Door(f"https://127.0.0.1:{port}")
        problem = await failed(join(door, "t", site.ca_hash, state_dir))
        assert not problem.retry
    finally:
        await runner.cleanup()


async def test_below_tls_1_3_nobody_is_spoken_to(site, state_dir):
    async with site.serving(site.show()) as door:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        old.load_verify_locations(cadata=site.keyring.ca_bundle.decode())
        port = int(door.url.rsplit(":", 1)[1])
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=old)


def test_a_foreign_ca_has_another_hash():
    now_ms = SystemClock().now_ms()
    one, two = make_ca("fed", now_ms=now_ms), make_ca("fed", now_ms=now_ms)
    assert ca_hash(one.certificate_pem) != ca_hash(two.certificate_pem)
