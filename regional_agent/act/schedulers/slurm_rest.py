"""Slurm by slurmrestd: jobs are handed over, and the queue is looked at, by its REST interface.

What that cannot say goes by the clients, as for any Slurm: elements of an array are ended one by
one, parts held back and released, the books and the configuration read. Neither way has a key
against a second submission: what may have come through is looked for first, as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from regional_agent.act.schedulers.batch.system import Submission
from regional_agent.act.schedulers.port import SchedulerUnavailable
from regional_agent.act.schedulers.slurm import UNREACHABLE, Slurm
from regional_agent.clients import Answer
from regional_agent.slurm import queue, rest_said, states
from regional_agent.slurm.rest import RestSilent, SlurmRest
from regional_agent.slurm.site import PoolSource, SlurmSite


class RestSlurm(Slurm):
    """See the module."""

    def __init__(self, site: SlurmSite, pools: Mapping[str, PoolSource] | None = None) -> None:
        super().__init__(site, pools)
        self.rest = SlurmRest(site.rest, site.rest_token_file, site.within_s)

    async def close(self) -> None:
        """Let go of the connections."""
        await self.rest.close()

    async def _hand_over(self, job: Submission, words: Sequence[str]) -> Answer:
        script = await asyncio.to_thread(job.script.read_text)
        try:
            version = await self.rest.version()
            body = {
                "name": job.name,
                "comment": queue.comment_of(job.tag, job.members),
                "current_working_directory": str(job.work),
                "standard_input": "/dev/null",
                "standard_output": str(job.log),
                "open_mode": "append" if version == rest_said.OLD else ["APPEND"],
                **rest_said.never_again(version),
                "environment": rest_said.environment_of(self._job_env, version),
                **rest_said.job_of(words, version),
            }
            answer = await self.rest.submit({"script": script, "job": body})
        except RestSilent as problem:
            raise SchedulerUnavailable(str(problem)) from problem
        local_id = answer.body.get("job_id")
        if answer.status == 200 and local_id:  # beside it may stand why the job waits
            return Answer(0, str(local_id), "", 0.0)
        if any(words in answer.said for words in UNREACHABLE):
            raise SchedulerUnavailable(f"slurmrestd: {answer.said}")
        return Answer(1, "", f"slurmrestd: {answer.said or answer.status}", 0.0)

    async def _jobs(self) -> tuple[queue.QueueRow, ...]:
        try:
            return rest_said.rows_of(await self.rest.get("jobs"))
        except (RestSilent, ValueError) as problem:
            raise SchedulerUnavailable(str(problem)) from problem

    async def _waiting_or_running(self) -> tuple[queue.QueueRow, ...]:
        return tuple(row for row in await self._jobs() if row.state not in states.ENDED)

    async def _known(self, name: str) -> tuple[queue.QueueRow, ...]:
        return tuple(row for row in await self._jobs() if row.name == name)
