"""A job of the federation in the words of Slurm: state, times, places, sizes."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker.cli.formatting import Now, at, epoch_ms, mappings
from broker.client import Client
from broker.compat.integer_ids import number_of
from federation.units import InvalidQuantity, parse_bytes, parse_duration_s

# state -> (long, short)
_WAITING = {"queued": "PENDING", "held": "PENDING", "placed": "PENDING", "running": "RUNNING"}
_ENDED = {
    "succeeded": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELLED",
    "preempted": "PREEMPTED", "lost": "NODE_FAIL", "refused": "FAILED", "timed_out": "TIMEOUT",
    "out_of_memory": "OUT_OF_MEMORY",
}  # fmt: skip
SHORT = {
    "PENDING": "PD", "RUNNING": "R", "COMPLETED": "CD", "FAILED": "F", "CANCELLED": "CA",
    "PREEMPTED": "PR", "NODE_FAIL": "NF", "TIMEOUT": "TO", "OUT_OF_MEMORY": "OOM",
    "CONFIGURING": "CF", "COMPLETING": "CG", "SUSPENDED": "S", "BOOT_FAIL": "BF",
}  # fmt: skip
LONG = {short: long for long, short in SHORT.items()}


@dataclass(frozen=True, slots=True)
class Whose:
    """Who asks: the subject of the token, and the name of this machine's user."""

    subject: str
    user: str

    def name(self, job: Mapping[str, Any]) -> str:
        """The user a job belongs to: our own jobs are shown under the name we have here."""
        subject = str(job.get("subject") or "-")
        return self.user if subject == self.subject else subject


def local_user() -> str:
    """The name of this machine's user."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


async def whose(client: Client) -> Whose:
    """Who we are, here and at the broker."""
    return Whose(str((await client.whoami()).get("subject")), local_user())


class Row:
    """One job as Slurm would show it. `now` is for what still runs."""

    def __init__(self, job: Mapping[str, Any], who: Whose, now: Now) -> None:
        self.job = job
        self.who = who
        self._now = now

    @property
    def number(self) -> int:
        """The integer the job is known by."""
        return number_of(self.job)

    @property
    def tasks(self) -> str:
        """The tasks of an array as written; empty for a job that is none."""
        spec = at(self.job, "spec", "array")
        if isinstance(spec, str):
            return spec
        total = at(self.job, "array", "tasks")
        return f"0-{total - 1}" if isinstance(total, int) and total > 0 else ""

    @property
    def id(self) -> str:
        """`123`, or `123_[0-9]` for an array."""
        return f"{self.number}_[{self.tasks}]" if self.tasks else str(self.number)

    @property
    def state(self) -> str:
        """Slurm's long word for the state."""
        if self.ended:
            return _ENDED.get(str(at(self.job, "outcome", "kind")), "FAILED")
        return _WAITING.get(str(self.job.get("phase")), "PENDING")

    @property
    def ended(self) -> bool:
        """Whether it will not run again."""
        return self.job.get("phase") == "ended"

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.job.get("name") or "-")

    @property
    def user(self) -> str:
        """Whose it is."""
        return self.who.name(self.job)

    def label(self, name: str) -> str:
        """A label of the job; empty without one."""
        return str(at(self.job, "labels", name) or "")

    @property
    def partition(self) -> str:
        """The partition it was submitted to, else where it runs."""
        return self.label("slurm-partition") or self.cluster or "n/a"

    @property
    def cluster(self) -> str:
        """The cluster of its last attempt; empty before the first."""
        attempts = mappings(self.job.get("attempts"))
        if attempts:
            return str(attempts[-1].get("cluster") or "")
        clusters = self.job.get("clusters")
        return str(clusters[-1]) if isinstance(clusters, list) and clusters else ""

    @property
    def reason(self) -> str:
        """Why it waits, in one word as Slurm has it."""
        if self.job.get("phase") == "held":
            return "JobHeldUser"
        if self.state != "PENDING":
            return "None"
        code = str(at(self.job, "reason", "code") or "")
        return {"undecided": "None", "": "None"}.get(code, "Resources")

    # Times ----------------------------------------------------------------------------------------

    def at_s(self, key: str) -> int | None:
        """Epoch seconds of `created_at`, `started_at` or `ended_at`; None if not so far."""
        ms = epoch_ms(self.job.get(key))
        return None if ms is None else ms // 1000

    def time(self, key: str, unknown: str = "Unknown") -> str:
        """The same as Slurm writes times, on this machine's clock."""
        seconds = self.at_s(key)
        if seconds is None:
            return unknown
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006

    @property
    def elapsed_s(self) -> int:
        """Seconds from its start to its end, or until now."""
        start = self.at_s("started_at")
        if start is None:
            return 0
        end = self.at_s("ended_at") or self._now.ms // 1000
        return max(end - start, 0)

    @property
    def limit_s(self) -> int | None:
        """The walltime asked for, where the spec is known."""
        text = at(self.job, "spec", "max_runtime")
        try:
            return parse_duration_s(text) if text else None
        except InvalidQuantity:
            return None

    # Sizes ----------------------------------------------------------------------------------------

    def _resource(self, key: str, default: Any) -> Any:
        found = at(self.job, "spec", "resources", key)
        return default if found is None else found

    @property
    def nodes(self) -> int:
        """Members of its gang."""
        return int(self._resource("replicas", 1))

    @property
    def cpus(self) -> int:
        """Cpus of all its members, rounded up."""
        each = self._resource("cpus", 1)
        return self.nodes * max(-(-int(float(each) * 1000) // 1000), 1)

    @property
    def memory_mib(self) -> int:
        """Memory of a member."""
        try:
            return parse_bytes(self._resource("memory", "1GiB")) >> 20
        except InvalidQuantity:
            return 1024

    @property
    def exit_code(self) -> str:
        """`code:signal`."""
        code, signal = at(self.job, "outcome", "exit_code"), at(self.job, "outcome", "signal")
        number = int(signal) if isinstance(signal, int) or str(signal).isdigit() else 0
        if self.state == "CANCELLED" and not code:
            number = number or 15
        return f"{code if isinstance(code, int) and code >= 0 else 0}:{number}"


def clock(seconds: int | None) -> str:
    """Slurm's short form of a span: `0:05`, `1:02:03`, `2-03:04:05`."""
    if seconds is None:
        return "UNLIMITED"
    days, rest = divmod(seconds, 86_400)
    hours, minutes, secs = rest // 3600, rest // 60 % 60, rest % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{secs:02}"
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"


def long_clock(seconds: int) -> str:
    """sacct's form of a span: `00:01:05`, `2-03:04:05`."""
    days, rest = divmod(seconds, 86_400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def wanted_states(text: str) -> set[str]:
    """Long names of the states in `PD,running`; unknown ones are kept as they are."""
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    return {LONG.get(word, word) for word in words}


def listed(text: str) -> list[str]:
    """The parts between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(texts: Iterable[str]) -> list[tuple[str, str]]:
    """(job, task) of `12`, `12_3`, `12_[1-3]`, `12.batch`, `12.1`; the task may be empty."""
    found = []
    for text in texts:
        for part in listed(text) if "[" not in text else [text]:
            job, _, task = part.partition("_" if "_" in part else ".")
            found.append((job, task))
    return found
