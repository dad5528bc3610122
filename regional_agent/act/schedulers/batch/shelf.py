"""Attempts of a batch system on disk: found again, claimed, taken away."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from federation.runs import Runs
from regional_agent.act.keeper.layout import AttemptDir, attempts_dir, is_uid, trash_dir
from regional_agent.act.schedulers.batch.attempt import Attempt, restore
from regional_agent.act.schedulers.batch.parts import Part


def take_claims(attempt: Attempt, part: Part, tasks: Runs) -> Runs:
    """Claim tasks so that no script can; returns those that were free."""
    taken = []
    for task in tasks:
        path = attempt.place.root / "claims" / str(task)
        again = task in attempt.dropped
        path = path.with_name(f"{task}.{part.nth}") if again else path
        try:
            with path.open("x") as file:
                file.write(f"dropped {part.nth}\n")
        except FileExistsError:
            continue
        taken.append(task)
    return Runs.of((task, task) for task in taken)


def restore_all(state: Path) -> list[Attempt]:
    """Every attempt of an earlier life."""
    with contextlib.suppress(FileNotFoundError):
        names = sorted(name for name in os.listdir(attempts_dir(state)) if is_uid(name))
        found = [restore(AttemptDir(state, name)) for name in names]
        return [attempt for attempt in found if attempt is not None]
    return []


def remove(state: Path, uid: str) -> None:
    """Take everything of an attempt away."""
    trash = trash_dir(state)
    trash.mkdir(mode=0o700, exist_ok=True)
    place = trash / uid
    shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        AttemptDir(state, uid).root.rename(place)
    shutil.rmtree(place, ignore_errors=True)
