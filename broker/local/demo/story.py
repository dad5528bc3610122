"""The story of the demonstration, told on a real federation.

Submit; let it run; kill one region's agent with SIGKILL while its work goes on; look at what is
known meanwhile; start the agent again; see its work adopted and everything end; count the starts.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.client import Client, NotReachable, Refused, prepare_job
from broker.local.demo.proof import Proof, prove
from broker.local.demo.workload import ARRAY, GANG, IMPOSSIBLE, SHOWN, Planned
from broker.local.federation import LocalFederation
from federation.environment import Clock
from federation.jobs import JobFile

POLL_S = 0.25
DEAD_S = 3.0
"""How long the region stays dead after the broker noticed."""
WITHIN_S = 120.0
VICTIM = "us-east"

Document = dict[str, Any]


class StoryFailed(RuntimeError):
    """The demonstration did not go as it must; the text says at which point."""


@dataclass
class Told:
    """What happened and what the API said, for `findings` and the command to show."""

    jobs: list[Document] = field(default_factory=list)
    while_dead: list[Document] = field(default_factory=list)
    notes_while_dead: list[str] = field(default_factory=list)
    starts_while_dead: int = 0
    adopted: list[str] = field(default_factory=list)
    unseen_s: float = 0.0
    clusters: list[Document] = field(default_factory=list)
    prices: list[Document] = field(default_factory=list)
    latency: Document = field(default_factory=dict)
    receipt: Document = field(default_factory=dict)
    impossible: Document = field(default_factory=dict)
    proof: Proof = field(default_factory=lambda: Proof(0, 0))


class Story:
    """One telling. `tell` takes lines of progress, `starts` is the file the programs write to."""

    def __init__(
        self,
        federation: LocalFederation,
        planned: Sequence[Planned],
        starts: Path,
        tell: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._federation = federation
        self._planned = planned
        self._starts = starts
        self._tell = tell
        self._clock = clock
        self._ids: dict[str, str] = {}
        self._told = Told()

    async def run(self, client: Client) -> Told:
        """Tell it. Raises StoryFailed, ClientError."""
        told = self._told
        await self._submit(client, [p for p in self._planned if not p.late])
        await self._until_under_way(client)
        await self._submit(client, [p for p in self._planned if p.late])
        await self._lose_and_find_region(client)
        await self._until_all_ended(client)
        told.impossible = await client.explain(self._ids[IMPOSSIBLE])
        told.receipt = await client.explain(self._ids[SHOWN])
        told.jobs = [await client.job(job_id) for job_id in self._ids.values()]
        told.clusters = sorted(await client.clusters(), key=lambda c: str(c["name"]))
        told.prices, told.latency = await client.prices(), await client.latency()
        told.proof = self._prove()
        return told

    async def _submit(self, client: Client, planned: Sequence[Planned]) -> None:
        base = Path(__file__).parent / "programs"
        specs = []
        for each in planned:
            prepared = prepare_job(JobFile.model_validate(each.spec), base)
            await client.upload(prepared)
            specs.append(prepared.spec)
        ids = await client.submit_batch(specs)
        self._ids |= dict(zip((p.name for p in planned), ids, strict=True))
        one = f"urgent: {planned[0].name}" if len(planned) == 1 else f"{len(planned)} jobs at once"
        self._tell(f"submitted {one}")

    # Watching -------------------------------------------------------------------------------------

    async def _looking(self, client: Client, what: str) -> AsyncIterator[dict[str, Document]]:
        """Our jobs by name, again and again; progress is told as it changes."""
        last, begun_s = "", self._clock.monotonic_s()
        while self._clock.monotonic_s() - begun_s < WITHIN_S:
            page = await client.jobs(limit=200)
            jobs = {str(job["name"]): job for job in page["jobs"]}
            line = progress(jobs.values())
            if line != last:
                self._tell(line)
                last = line
            yield jobs
            await asyncio.sleep(POLL_S)
        raise StoryFailed(f"not within {WITHIN_S:g} s: {what} ({last})")

    async def _until_under_way(self, client: Client) -> None:
        async for jobs in self._looking(client, f"{GANG} and {ARRAY} run"):
            array = jobs[ARRAY].get("array") or {}
            if jobs[GANG]["phase"] == "running" and array.get("succeeded", 0) > 0:
                return

    async def _until_all_ended(self, client: Client) -> None:
        wanted = {p.name for p in self._planned if p.runs}
        async for jobs in self._looking(client, "all jobs end"):
            ended = {name for name in wanted if jobs.get(name, {}).get("phase") == "ended"}
            failed = [n for n in ended if (jobs[n].get("outcome") or {}).get("kind") != "succeeded"]
            if failed:
                raise StoryFailed(f"{failed[0]} ended otherwise: {jobs[failed[0]]['outcome']}")
            if ended == wanted:
                return

    # A region dies --------------------------------------------------------------------------------

    async def _lose_and_find_region(self, client: Client) -> None:
        told = self._told
        before = await self._attempts(client)
        self._tell(f"kill -9 of the agent of {VICTIM}; its keeper and its jobs live on")
        killed_s = self._clock.monotonic_s()
        self._federation.kill(VICTIM, signal.SIGKILL)
        await self._until_connected(client, wanted=False)
        there = {str(a["uid"]) for a in before if a["phase"] != "ended"}
        starts = self._starts_of(there)
        await asyncio.sleep(DEAD_S)
        page = await client.jobs(limit=200)
        told.notes_while_dead = [str(note) for note in page.get("notes") or ()]
        told.while_dead = [
            job for job in page["jobs"] if there & {a["uid"] for a in job["attempts"]}
        ]
        told.starts_while_dead = self._starts_of(there) - starts
        self._tell(f"{VICTIM} is silent: {len(told.while_dead)} jobs there are unknown, not gone")
        self._federation.revive(VICTIM)
        await self._until_connected(client, wanted=True)
        told.unseen_s = round(self._clock.monotonic_s() - killed_s, 1)
        after = {str(a["uid"]) for a in await self._attempts(client)}
        told.adopted = sorted(there & after)
        adopted = f"{len(told.adopted)} attempts adopted"
        self._tell(f"{VICTIM} is back after {told.unseen_s:g} s; {adopted}")

    async def _attempts(self, client: Client) -> list[Document]:
        page = await client.jobs(limit=200)
        return [
            attempt
            for job in page["jobs"]
            for attempt in job["attempts"]
            if attempt["cluster"] == VICTIM
        ]

    async def _until_connected(self, client: Client, *, wanted: bool) -> None:
        begun_s = self._clock.monotonic_s()
        while self._clock.monotonic_s() - begun_s < WITHIN_S:
            try:
                if bool((await client.cluster(VICTIM))["connected"]) is wanted:
                    return
            except (NotReachable, Refused):
                pass
            await asyncio.sleep(0.1)
        raise StoryFailed(f"{VICTIM} is {'not back' if wanted else 'still there'}")

    # The proof ------------------------------------------------------------------------------------

    def _starts_of(self, attempts: Set[str]) -> int:
        """Starts the programs of these attempts wrote down so far."""
        return sum(line.partition(" ")[0] in attempts for line in self._lines())

    def _lines(self) -> list[str]:
        return self._starts.read_text().splitlines() if self._starts.exists() else []

    def _prove(self) -> Proof:
        expected = {self._ids[p.name]: p.starts for p in self._planned}
        names = {job_id: name for name, job_id in self._ids.items()}
        return prove(self._lines(), expected, names)


def progress(jobs: Any) -> str:
    """One line: how many jobs are in each phase, and how far the array is."""
    counts: dict[str, int] = {}
    array: Mapping[str, Any] | None = None
    for job in jobs:
        counts[str(job["phase"])] = counts.get(str(job["phase"]), 0) + 1
        array = job.get("array") or array
    order = ("queued", "held", "placed", "running", "ended")
    parts = [f"{counts[phase]} {phase}" for phase in order if phase in counts]
    if array:
        parts.append(f"array {array.get('succeeded', 0)}/{array.get('tasks', 0)}")
    return ", ".join(parts)
