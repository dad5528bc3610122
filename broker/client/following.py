"""Following a log as it grows, and waiting for jobs to end, across broken connections."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from broker.client.client import Client
from broker.client.documents import Document
from broker.client.errors import ClientError, NotReachable, Refused, TimedOut
from broker.client.server_sent_events import EventDecoder, ServerSentEvent
from broker.client.transport import Request
from federation.runs import parse_runs

SILENCE_S = 75.0  # a stream without even a comment for so long is taken for broken
RECONNECT_S = 0.5
POLL_S = (1.0, 5.0)  # without a stream of events: how often jobs are looked at
CHECK_S = 15.0  # with one: how often they are looked at all the same


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of one attempt's log, in order, never twice."""

    attempt: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LogWaiting:
    """Nothing to show yet; why."""

    text: str


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The job ended (or the log that was asked for is complete)."""

    phase: str
    outcome: Any


LogEvent = LogPiece | LogWaiting | LogEnd


@dataclass(slots=True)
class _Place:
    """How far each attempt's log has been shown, and which attempt that was last.

    Once a connection broke we ask for attempts by their number, one after the other: what the
    broker takes for the latest may have changed meanwhile, and an offset means nothing in another
    attempt's log.
    """

    shown: dict[str, int] = field(default_factory=dict)
    attempt: str = ""
    resumed: bool = False

    def fresh(self, piece: LogPiece) -> LogPiece | None:
        """`piece` without what was shown before, or None."""
        already = self.shown.get(piece.attempt, piece.offset)
        data = piece.data[max(already - piece.offset, 0) :]
        if not data:
            return None
        offset = piece.offset + len(piece.data) - len(data)
        self.shown[piece.attempt] = offset + len(data)
        self.attempt = piece.attempt
        return LogPiece(piece.attempt, offset, data)


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which log: of the whole job, of one task of an array, or of one attempt (its number)."""

    job: str
    task: str = ""
    attempt: str = ""
    offset: int = 0
    stream: str = "output"


async def follow_log(
    client: Client, choice: LogChoice, reconnect_s: float = 60.0
) -> AsyncIterator[LogEvent]:
    """The log as it grows, until the job ends. Picks up by offset after a broken connection.

    Raises NotReachable when no connection could be made for `reconnect_s`, Refused, Garbled.
    """
    place = _Place()
    loop = asyncio.get_running_loop()
    broken_since: float | None = None
    while True:
        failure = NotReachable("the stream of the log ended early")
        try:
            async for event in _stream_once(client, choice, place):
                broken_since = None
                if not isinstance(event, LogEnd):
                    yield event
                elif end := await _settled(client, choice, place, event):
                    yield end
                    return
                else:
                    failure = NotReachable("the log goes on in another attempt")
                    break
        except NotReachable as error:
            failure = error
        except ValueError as error:
            failure = NotReachable(f"the stream of the log broke: {error}")
        place.resumed = True
        now = loop.time()
        broken_since = now if broken_since is None else broken_since
        if now - broken_since > reconnect_s:
            raise failure
        await asyncio.sleep(RECONNECT_S)


async def _stream_once(
    client: Client, choice: LogChoice, place: _Place
) -> AsyncIterator[LogEvent]:
    attempt = choice.attempt or (_number(place.attempt) if place.resumed else "")
    # The offset asked for is that of the first attempt; those after it are read from their start.
    first = choice.offset if choice.attempt or not place.shown else 0
    offset = place.shown.get(place.attempt, first)
    query = {"stream": choice.stream, "offset": str(offset), "follow": "true"}
    query |= {"task": choice.task} if choice.task else {}
    query |= {"attempt": attempt} if attempt else {}
    path = f"/jobs/{quote(choice.job, safe='')}/logs"
    request = Request("GET", path, query, {"Accept": "text/event-stream"})
    async with client.transport.open(request, read_s=SILENCE_S) as response:
        decoder = EventDecoder()
        async for chunk in client.transport.chunks(response):
            for event in decoder.feed(chunk):
                read = _log_event(event, place.attempt)
                if isinstance(read, LogPiece):
                    read = place.fresh(read)
                if read is not None:
                    yield read


async def _settled(
    client: Client, choice: LogChoice, place: _Place, end: LogEnd
) -> LogEnd | None:
    """`end`, if it is the end of what was asked for; None when the log goes on.

    When we asked for one attempt only to pick up where we were, another may follow it.
    """
    if choice.attempt or not place.resumed or not place.attempt:
        return end
    job = await client.job(choice.job)
    following = _following(job, choice.task, int(_number(place.attempt) or 0))
    if following:
        place.attempt = following
        return None
    return LogEnd("ended", job.get("outcome")) if has_ended(job) else None


def _following(job: Document, task: str, number: int) -> str:
    """The next attempt after that number which has the task (if one is meant), or empty."""
    later: list[tuple[int, str]] = []
    attempts = job.get("attempts")
    for attempt in attempts if isinstance(attempts, list) else []:
        uid = str(attempt.get("uid", "")) if isinstance(attempt, dict) else ""
        if _number(uid) and int(_number(uid)) > number and _holds(attempt, task):
            later.append((int(_number(uid)), uid))
    return min(later)[1] if later else ""


def _holds(attempt: Document, task: str) -> bool:
    if not task or not attempt.get("tasks"):
        return True
    try:
        return int(task) in parse_runs(attempt["tasks"])
    except ValueError:
        return True


def _number(uid: str) -> str:
    """The number of an attempt, of its uid or itself; empty when there is none."""
    number = uid.rpartition("-")[2]
    return number if number.isascii() and number.isdigit() else ""


def _log_event(event: ServerSentEvent, attempt: str) -> LogEvent | None:
    try:
        data = json.loads(event.data) if event.data else {}
    except (ValueError, RecursionError):
        data = {"text": event.data}
    if not isinstance(data, dict):
        return None
    if event.event == "log":
        offset = data.get("offset")
        return LogPiece(
            str(data.get("attempt") or attempt),
            offset if isinstance(offset, int) and offset >= 0 else 0,
            _bytes_of(data),
        )
    if event.event == "waiting":
        return LogWaiting(str(data.get("text", "")))
    if event.event == "end":
        outcome = data.get("outcome")
        if isinstance(outcome, str):
            outcome = {"kind": outcome, "exit_code": data.get("exit_code")}
        return LogEnd(str(data.get("phase", "")), outcome)
    return None


def _bytes_of(data: Document) -> bytes:
    encoded = data.get("data_base64")
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return b""
    text = data.get("text")
    return text.encode("utf-8", "replace") if isinstance(text, str) else b""


async def wait_for_jobs(
    client: Client,
    job_ids: Sequence[str],
    timeout_s: float | None = None,
    on_change: Callable[[Document], None] | None = None,
) -> dict[str, Document]:
    """The jobs once all have ended, by id. `on_change` is told of each job when it looks new.

    Listens to events and looks at jobs now and then as well, so a lost event costs seconds only.
    Raises TimedOut, Refused (a job that is not there), NotReachable.
    """
    watch = _Watch(client, dict.fromkeys(job_ids), on_change or (lambda job: None))
    listener = asyncio.create_task(watch.listen())
    try:
        async with asyncio.timeout(timeout_s):
            return await watch.until_ended()
    except TimeoutError:
        left = [job_id for job_id, job in watch.jobs.items() if not has_ended(job)]
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        raise TimedOut(
            f"{left[0] if left else 'the job'}{more} did not end in {timeout_s:g} s",
            "it goes on; wait again, or cancel it",
        ) from None
    finally:
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)


def has_ended(job: Document | None) -> bool:
    """Whether a job of the API will not run again."""
    return job is not None and (job.get("phase") == "ended" or bool(job.get("outcome")))


class _Watch:
    def __init__(
        self,
        client: Client,
        jobs: dict[str, Document | None],
        on_change: Callable[[Document], None],
    ) -> None:
        self.jobs = jobs
        self._client = client
        self._on_change = on_change
        self._stirred: set[str] = set(jobs)
        self._news = asyncio.Event()
        self._listening = False

    async def until_ended(self) -> dict[str, Document]:
        pause_s = POLL_S[0]
        while True:
            await self._look()
            left = [job_id for job_id, job in self.jobs.items() if not has_ended(job)]
            if not left:
                return {job_id: job for job_id, job in self.jobs.items() if job is not None}
            self._news.clear()
            if not self._stirred:
                wait_s = CHECK_S if self._listening else pause_s
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._news.wait()
                pause_s = min(pause_s * 1.5, POLL_S[1])
            if not self._stirred:
                self._stirred.update(left)

    async def _look(self) -> None:
        stirred, self._stirred = self._stirred, set()
        for job_id in stirred:
            if has_ended(self.jobs[job_id]):
                continue
            job = await self._client.job(job_id)
            before, self.jobs[job_id] = self.jobs[job_id], job
            if before is None or before.get("phase") != job.get("phase"):
                self._on_change(job)

    async def listen(self) -> None:
        """Mark jobs that events speak of, for as long as there is a stream to listen to."""
        only = next(iter(self.jobs)) if len(self.jobs) == 1 else None
        last_id = ""
        while True:
            with suppress(ClientError, ValueError):
                try:
                    request = self._client.events({"job": only, "since": last_id}, last_id)
                    async with self._client.transport.open(request, read_s=SILENCE_S) as answer:
                        self._started()
                        decoder = EventDecoder()
                        async for chunk in self._client.transport.chunks(answer):
                            for event in decoder.feed(chunk):
                                last_id = event.id
                                self._mark(event)
                except Refused:
                    return  # no such stream here: looking now and then has to do
                finally:
                    self._listening = False
                    self._news.set()
            await asyncio.sleep(1.0)

    def _started(self) -> None:
        # What happened before the stream began is seen by looking once more.
        self._listening = True
        self._stirred.update(self.jobs)
        self._news.set()

    def _mark(self, event: ServerSentEvent) -> None:
        if event.event == "reset":
            self._started()
            return
        try:
            data = json.loads(event.data)
        except (ValueError, RecursionError):
            return
        if not isinstance(data, dict):
            return
        names = {str(data.get("job", "")), str(data.get("id", "")).split("-")[0]}
        stirred = names & set(self.jobs)
        if stirred:
            self._stirred |= stirred
            self._news.set()
