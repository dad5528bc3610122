"""Packs on disk: begun, and found again with their attempts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from regional_agent.act.keeper import records
from regional_agent.act.keeper.layout import AttemptDir
from regional_agent.act.schedulers.batch.attempt import (
    Attempt,
    apply_record,
    lay_dirs,
    order_body,
    order_from,
)
from regional_agent.act.schedulers.batch.pack import Pack, packs_dir
from regional_agent.act.schedulers.batch.system import SINGLE
from regional_agent.act.schedulers.port import LaunchOrder


def begin(state: Path, name: str, orders: Sequence[LaunchOrder], now_ms: int) -> Pack:
    """Write the orders down, durably; their directories are there. Raises OSError."""
    root = packs_dir(state)
    pack = Pack(root, name, tuple(order.uid for order in orders), now_ms)
    members = [order_body(order) for order in orders]
    body = records.encode({"is": "pack", "at": now_ms, "members": members})
    records.replace_file(pack.journal, body)
    return pack


def attempts_of(state: Path, pack: Pack, orders: Iterable[LaunchOrder]) -> list[Attempt]:
    """The attempts of a pack, as they were when it began."""
    return [
        Attempt(AttemptDir(state, order.uid), order, SINGLE, 1, pack.intended_ms,
                parts=[pack.part_of(order.uid)], pack=pack)
        for order in orders
    ]  # fmt: skip


def restore_packs(state: Path) -> list[Attempt]:
    """The attempts of all packs of an earlier life, those forgotten left out."""
    found: list[Attempt] = []
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(packs_dir(state).iterdir()):
            if not path.name.endswith((".sh", ".log", ".new")):
                found += _restore(state, path)
    return found


def _restore(state: Path, path: Path) -> list[Attempt]:
    written = records.read(path)[0]
    if not written or written[0].get("is") != "pack":
        return []
    first, *rest = written
    orders = [order_from(body) for body in first["members"]]
    pack = Pack(path.parent, path.name, tuple(o.uid for o in orders), first["at"], tried=True)
    for record in rest:
        if record["is"] == "id":
            pack.local_id = record["id"]
        elif record["is"] == "forgotten":
            pack.forgotten.add(record["uid"])
    alive = [order for order in orders if order.uid not in pack.forgotten]
    by_uid = {attempt.uid: attempt for attempt in attempts_of(state, pack, alive)}
    for record in rest:
        attempt = by_uid.get(record.get("uid", ""))
        if attempt is not None:
            apply_record(attempt, record)
    for attempt in by_uid.values():
        if attempt.outcome is None:
            lay_dirs(attempt.place)
    return list(by_uid.values())
