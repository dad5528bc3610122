"""What a broker takes from an agent is bounded, and a bad frame ends its own session only."""

import asyncio

import grpc
import pytest

from broker.lifecycle import events as ev
from federation.handshake.frames import Hello
from federation.session_tls import channel_credentials
from federation.wire import LOGS_METHOD, SESSION_METHOD
from federation.wire import records as rec
from federation.wire import session as pb
from federation.wire.handshake_frames import hello_to_wire
from regional_agent.identity import load_identity
from tests.integration.session.federation_site import running


class Raw:
    """An agent that says whatever it likes."""

    def __init__(self, broker, state):
        identity = load_identity(state)
        credentials = channel_credentials(identity.ca_pem, identity.credential)
        self.channel = grpc.aio.secure_channel(broker.address, credentials)
        self.call = self.channel.stream_stream(SESSION_METHOD)()

    async def say(self, frame: pb.AgentFrame | bytes) -> None:
        raw = frame if isinstance(frame, bytes) else frame.SerializeToString()
        await self.call.write(raw)

    async def hear(self) -> pb.BrokerFrame:
        async with asyncio.timeout(10):
            raw = await self.call.read()
        return pb.BrokerFrame.FromString(raw)

    async def goodbye(self) -> pb.Goodbye:
        while True:
            frame = await self.hear()
            if frame.WhichOneof("body") == "goodbye":
                return frame.goodbye

    async def greet(self, cluster: str = "eu", **more) -> None:
        hello = Hello(cluster, more.pop("instance", "one"), "disk", **more)
        await self.say(hello_to_wire(hello))
        assert (await self.hear()).WhichOneof("body") == "welcome"

    async def update(self, **parts) -> None:
        await self.say(pb.AgentFrame(update=pb.AgentUpdate(**parts)))


@pytest.fixture
async def raw(broker, state):
    broker.admit("eu", state)
    made = Raw(broker, state)
    yield made
    await made.channel.close()


def capacity(generation: int, pools: int = 1) -> pb.Report:
    made = rec.CapacityReport(generation=generation)
    for n in range(pools):
        pool = made.pools.add(pool=f"pool-{n}-{'x' * 50}")
        pool.groups.add(count=1, accelerator="CPU", total=8, free=8)
    return pb.Report(capacity=made)


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        ([b"\xff\xff\xff garbage"], "not of this protocol"),
        ([pb.AgentFrame()], "empty frame"),
        ([pb.AgentFrame(update=pb.AgentUpdate())], "hello has to come first"),
    ],
)
async def test_nonsense_instead_of_a_hello_is_told_and_ends_the_stream(raw, broker, frames, says):
    for frame in frames:
        await raw.say(frame)
    goodbye = await raw.goodbye()
    assert says in goodbye.text
    assert broker.sessions == []


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (pb.Event(event_seq=1, uid="j1-1"), "says nothing"),
        (pb.Event(event_seq=1, started=pb.Started()), "no uid"),
        (
            pb.Event(event_seq=1, uid="j1-1", ended=pb.Ended(outcome=rec.Outcome(kind="great"))),
            "no outcome 'great'",
        ),
        (
            pb.Event(
                event_seq=1,
                uid="j1-1",
                tasks=pb.TasksChanged(started=[rec.Run(first=9, last=1)]),
            ),
            "upwards",
        ),
    ],
)
async def test_an_event_that_cannot_be_right_ends_the_session_with_one_line(
    raw, broker, event, says
):
    await raw.greet()
    await raw.update(events=[event])
    goodbye = await raw.goodbye()
    assert says in goodbye.text and "\n" not in goodbye.text
    await broker.until(lambda: broker.closed, "the end of the session")
    assert broker.events == {}


async def test_reports_are_bounded_in_size_and_rate_and_the_session_lives_on(raw, broker):
    await raw.greet()
    await raw.update(reports=[capacity(1, pools=4_000)])
    for generation in range(2, 12):
        await raw.update(reports=[capacity(generation)])
    started = pb.Event(event_seq=1, uid="j1-1", started=pb.Started(launch_ms=1))
    await raw.update(events=[started])
    await broker.event("j1-1", ev.Started)
    assert [c.capacity.generation for c in broker.capacities] == [2, 3, 4]
    kept = rec.ReportEnvelope.FromString(broker.capacities[0].raw)
    assert kept.received_ms == broker.capacities[0].capacity.received_ms > 0


async def test_a_report_that_lies_is_dropped_and_the_session_lives_on(raw, broker):
    await raw.greet()
    lie = capacity(1)
    lie.capacity.pools[0].groups[0].free = 9
    await raw.update(reports=[lie])
    started = pb.Event(event_seq=1, uid="j1-1", started=pb.Started(launch_ms=1))
    await raw.update(events=[started])
    await broker.event("j1-1", ev.Started)
    assert broker.capacities == []


async def test_events_sent_again_are_taken_once(raw, broker):
    await raw.greet()
    started = pb.Event(event_seq=5, uid="j1-1", started=pb.Started(launch_ms=1))
    await raw.update(events=[started])
    await raw.update(events=[started])
    ended = pb.Event(event_seq=6, uid="j1-1", ended=pb.Ended(outcome=rec.Outcome(kind="lost")))
    await raw.update(events=[started, ended])
    await broker.event("j1-1", ev.Ended)
    assert [e.event_seq for e in broker.events["j1-1"]] == [5, 6]


async def test_silence_of_three_heartbeats_ends_the_session(raw, broker):
    await raw.greet()
    await broker.connected("eu")
    began_s = asyncio.get_running_loop().time()
    await broker.until(lambda: broker.closed, "the end of the session")
    assert 2.5 < asyncio.get_running_loop().time() - began_s < 6
    assert "silent" in broker.closed[0].why


async def test_a_second_agent_with_the_same_identity_is_refused_while_the_first_is_heard(
    raw, broker, state
):
    async with running(state):
        await broker.connected("eu")
        await raw.say(hello_to_wire(Hello("eu", "two", "disk")))
        assert (await raw.goodbye()).code == "session_exists"
        await broker.run("j1-1", {"run": "true"})
        await broker.event("j1-1", ev.Ended)


async def test_a_log_stream_needs_a_session_of_the_same_agent(raw, broker):
    call = raw.channel.stream_stream(LOGS_METHOD)()
    with pytest.raises(grpc.aio.AioRpcError) as refused:  # by the one or by the other
        await call.write(pb.LogReply(cluster="eu").SerializeToString())
        await call.read()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_log_is_followed_while_it_grows_and_completes(broker, state):
    broker.admit("eu", state)
    async with running(state):
        await broker.connected("eu")
        await broker.run("j1-1", {"run": "echo one; sleep 0.7; echo two"})
        await broker.event("j1-1", ev.Started)
        read = broker.gateway.read_log
        data, complete = b"", False
        async with asyncio.timeout(15):
            while not complete:
                part = await read("eu", "j1-1", "output", len(data), 1000, wait_ms=5_000)
                data += part.data
                complete = part.complete and len(data) == part.total_bytes
        assert data == b"one\ntwo\n"
        with pytest.raises(LookupError):
            await read("eu", "j1-1", "../../etc/passwd", 0, 10)
