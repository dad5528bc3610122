"""Attempts of a batch system on disk: found again, claimed, taken away."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from federation.runs import Runs
from regional_agent.act.keeper import capture
from regional_agent.act.keeper.layout import AttemptDir, attempts_dir, is_uid, trash_dir
from regional_agent.act.schedulers.batch.attempt import Attempt, restore
from regional_agent.act.schedulers.batch.pack import Pack
from regional_agent.act.schedulers.batch.packs import restore_packs
from regional_agent.act.schedulers.batch.parts import Part

_DROPPED = "dropped"


def take_claims(attempt: Attempt, part: Part, tasks: Runs) -> Runs:
    """Claim tasks so that no script can; returns those that were free, or were claimed here before
    a crash. A claim appears with what it says, or not at all."""
    taken, says = [], f"{_DROPPED} {part.nth}\n"
    written = attempt.place.root / f"{_DROPPED}.{part.nth}"
    written.write_text(says)
    for task in tasks:
        path = attempt.place.root / "claims" / str(task)
        again = task in attempt.dropped
        path = path.with_name(f"{task}.{part.nth}") if again else path
        try:
            path.hardlink_to(written)
        except FileExistsError:
            if path.read_text() != says:
                continue
        taken.append(task)
    return Runs.of((task, task) for task in taken)


def bar(attempt: Attempt, grace_s: int, now_ms: int) -> None:
    """It has not survived a silence: it is to stop, and nothing of it begins any more, whatever a
    node has not seen of that yet."""
    attempt.wrote_cancel(grace_s, now_ms, fenced=True)
    for part in attempt.parts:
        take_claims(attempt, part, part.tasks.intersection(attempt.unstarted))


def take_back(attempt: Attempt) -> bool:
    """Take the claim of an attempt that is no array and has not begun; False where a script has it.
    Asked again it says the same, also after a crash in between."""
    if attempt.outcome is not None or attempt.cancel is not None:
        return True
    if attempt.started or attempt.ended:
        return False
    return not any(
        part.tasks.difference(take_claims(attempt, part, part.tasks)) for part in attempt.parts
    )


def restore_all(state: Path) -> list[Attempt]:
    """Every attempt of an earlier life."""
    found: list[Attempt] = []
    with contextlib.suppress(FileNotFoundError):
        names = sorted(name for name in os.listdir(attempts_dir(state)) if is_uid(name))
        made = [restore(AttemptDir(state, name)) for name in names]
        found = [attempt for attempt in made if attempt is not None]
    return [*found, *restore_packs(state)]


def close_off(attempts: Collection[Attempt]) -> None:
    """The logs of attempts that ended are whole, and how they ended is written down: those of one
    pack with one wait for the disk."""
    packs: dict[str, tuple[Pack, list[dict[str, Any]]]] = {}
    for attempt in attempts:
        logs = attempt.place.logs
        for path in logs.iterdir() if logs.exists() else ():
            capture.close_off(path)
        if attempt.pack is None:
            attempt.wrote_end()
            continue
        _, ends = packs.setdefault(attempt.pack.name, (attempt.pack, []))
        ends.append(attempt.end_record() | {"uid": attempt.uid})
    for pack, ends in packs.values():
        pack.write(ends)


def rein_in(attempts: Iterable[Attempt]) -> None:
    """Keep the logs of running attempts within bounds."""
    for attempt in attempts:
        for path in attempt.place.logs.iterdir() if attempt.place.logs.exists() else ():
            capture.rein_in(path)


def remove(state: Path, uid: str, pack: Pack | None = None) -> None:
    """Take everything of an attempt away."""
    if pack is not None:
        pack.forget(uid)
    trash = trash_dir(state)
    trash.mkdir(mode=0o700, exist_ok=True)
    place = trash / uid
    shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        AttemptDir(state, uid).root.rename(place)
    shutil.rmtree(place, ignore_errors=True)
