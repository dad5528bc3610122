"""The files that the scripts of attempts need at the nodes, written whole and not waited for: they
are laid again before anything is handed over again."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from regional_agent.act.carry.files import KEEP
from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.schedulers.batch import script
from regional_agent.act.schedulers.batch.pack import packs_dir
from regional_agent.act.schedulers.batch.parts import Part
from regional_agent.act.schedulers.batch.system import Traits
from regional_agent.act.schedulers.port import LaunchOrder


def lay_program(
    place: AttemptDir, order: LaunchOrder, usual: Iterable[tuple[str, str]]
) -> None:
    """What one process of the program is. Raises OSError."""
    if order.run:
        place.script.write_text(order.run)
        place.script.chmod(0o700)
    if order.keep:
        (place.root / KEEP).write_text("".join(f"{each}\n" for each in order.keep))
    (place.root / "env.sh").write_text(script.environment(place, order, dict(usual)))
    (place.root / "rank.sh").write_text(script.rank_script(place, order))


def lay_again(place: AttemptDir, order: LaunchOrder, usual: Iterable[tuple[str, str]]) -> None:
    """What a job needs that waits at the batch system while the disk was lost. Raises OSError."""
    packs_dir(place.state).mkdir(mode=0o700, exist_ok=True)
    lay_program(place, order, usual)


def lay(
    place: AttemptDir,
    order: LaunchOrder,
    part: Part,
    traits: Traits,
    usual: Iterable[tuple[str, str]],
) -> None:
    """The program, and the batch script of a part of an attempt. Raises OSError."""
    lay_program(place, order, usual)
    lay_part(place, order, part, traits)


def lay_part(place: AttemptDir, order: LaunchOrder, part: Part, traits: Traits) -> None:
    """The batch script of a part of an attempt. Raises OSError."""
    table = ""
    if part.table:
        table = f"tasks-{part.nth}"
        (place.root / table).write_text("".join(f"{task}\n" for task in part.tasks))
    path = place.root / f"job-{part.nth}.sh"
    path.write_text(script.job_script(place, order, traits, part.nth, table))
    path.chmod(0o700)


def lay_pack(
    state: Path, name: str, members: Sequence[str], order: LaunchOrder, traits: Traits
) -> None:
    """The batch script of a pack; `order` is that of any of its members. Raises OSError."""
    root = packs_dir(state)
    root.mkdir(mode=0o700, exist_ok=True)
    path = root / f"{name}.sh"
    path.write_text(script.pack_script(state, members, order, traits))
    path.chmod(0o700)


def clear(state: Path, uids: Iterable[str]) -> None:
    """Take back what was laid for attempts that never ran."""
    for uid in uids:
        shutil.rmtree(AttemptDir(state, uid).root, ignore_errors=True)
