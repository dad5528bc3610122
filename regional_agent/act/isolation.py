"""How far jobs of this host are kept apart: what was asked for, what a trial found, what is so.

A grade is claimed only for what a trial showed to hold on this machine, and each trial and its
reason is told (`tradewind-agent doctor`, the agent's log).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from regional_agent.act.keeper.sandbox import PROGRAM, Sandbox, Shown, wrapped
from regional_agent.clients import ClientSilent, run_probe

AUTO, SHARED, SANDBOXED = "auto", "shared-uid", "sandboxed"
GRADES = ("shared-uid", "per-user", "sandboxed", "hard")
TRIAL_S = 10.0
SECRETS_AT_HOME = (
    ".ssh", ".gnupg", ".aws", ".azure", ".config", ".kube", ".docker", ".netrc", ".git-credentials",
    ".local/share/keyrings", ".local/state", ".bash_history",
)  # fmt: skip
"""What lies in the home of whoever runs the agent and is no job's business."""

_TRIAL = """
cat "$1/secret" 2>/dev/null && echo "reads the agent's files"
cat "$2/secret" 2>/dev/null && echo "reads another job's files"
test "$(ls /proc | grep -c '^[0-9]')" -lt 8 || echo "sees the host's processes"
true 2>/dev/null > x || echo "cannot write in its own directory"
true 2>/dev/null > /tmp/x || echo "cannot write in /tmp"
true 2>/dev/null > /usr/tradewind-trial && echo "writes to the system"
test -z "$(grep -v -e Inter -e face -e lo: /proc/net/dev)" || echo "sees the network"
true
"""


class IsolationMissing(Exception):
    """A grade was asked for that this host cannot give; one line with the reason."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """As `agent.yaml` says: `mode` is auto, shared-uid or sandboxed. `network`: every job gets
    the host's, not only those that need it. Paths that exist only elsewhere are no fault."""

    mode: str = SHARED
    network: bool = False
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Isolation:
    """What is so. `sandbox` None: jobs run as processes like any other of this user. `limits`:
    control groups are wanted where the keeper has them. `reason`: why no more."""

    sandbox: Sandbox | None = None
    network: bool = False
    limits: bool = False
    reason: str = "not asked for (isolation: shared-uid)"

    @property
    def grade(self) -> str:
        """The grade a site of one host may claim."""
        return SHARED if self.sandbox is None else SANDBOXED

    def of(self, *, network: bool) -> Sandbox | None:
        """The sandbox of a job that needs the network, or does not."""
        if self.sandbox is None:
            return None
        return replace(self.sandbox, network=network or self.network)


def find_isolation(wanted: Wanted, state: Path, *, limits: bool) -> Isolation:
    """The best this host gives of what is wanted; `limits`: the inventory is what it really has.

    Raises IsolationMissing where `sandboxed` is wanted and cannot be had.
    """
    if wanted.mode == SHARED:
        return Isolation()
    sandbox = Sandbox(
        writable=wanted.writable,
        readable=wanted.readable,
        hidden=(*_home_secrets(), *wanted.hidden),
    )
    reason = try_sandbox(sandbox, state)
    if not reason:
        return Isolation(sandbox, wanted.network, limits, "")
    if wanted.mode == SANDBOXED:
        raise IsolationMissing(f"isolation: sandboxed cannot be had here: {reason}")
    return Isolation(None, wanted.network, limits, reason)


def try_sandbox(sandbox: Sandbox, state: Path) -> str:
    """Run a nosy program in a sandbox like those of jobs; what is wrong, empty for nothing."""
    if shutil.which(PROGRAM) is None:
        return f"{PROGRAM} is not installed (package bubblewrap)"
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=state) as name:
        trial = Path(name)
        own, other = trial / "own", trial / "other"
        for directory in (own, other):
            directory.mkdir()
        for directory in (trial, other):
            (directory / "secret").write_text("secret")
        script = ("/bin/sh", "-c", _TRIAL, "sh", str(trial), str(other))
        # As of a job without the network: then all of it is tried.
        words = wrapped(script, replace(sandbox, network=False), Shown(state, own, own / "run"))
        try:
            done = run_probe(words, TRIAL_S)
        except ClientSilent as problem:
            return f"{PROGRAM}: {problem}"
    said = [*done.out.splitlines(), *done.err.splitlines()]
    if done.code:
        return f"{PROGRAM} ended with code {done.code}: {' '.join(said)[:300]}"
    faults = [line for line in said if line != "secret"]
    return f"a job in it {', '.join(faults)}" if faults else ""


def _home_secrets() -> tuple[str, ...]:
    home = os.path.expanduser("~")
    return tuple(os.path.join(home, name) for name in SECRETS_AT_HOME)
