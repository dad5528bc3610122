"""Stored decisions as files of one directory: `<epoch>.<number>[.<why>].json.gz`.

Files appear whole, but are not synced: a power cut may take the last ones, and nothing rests on
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from broker.feedback.backends.durable_files import make_directory
from broker.feedback.decisions import (
    WHYS,
    DecisionLimits,
    DecisionStore,
    StoredDecision,
    check_cycle,
    superseded,
)
from broker.feedback.ports import FeedbackUnavailable

SUFFIX: Final = ".json.gz"
_NS_PER_MS: Final = 1_000_000

Answer = TypeVar("Answer")


class DirectoryDecisions(DecisionStore):
    """`DecisionStore` in a directory of this user alone."""

    def __init__(self, root: Path, limits: DecisionLimits) -> None:
        """Raises `FeedbackUnavailable` if the directory cannot be made."""
        self._root = root
        self._limits = limits
        self._turn = asyncio.Lock()
        try:
            make_directory(root)
        except OSError as error:
            raise FeedbackUnavailable(f"decisions: {error}") from error

    async def put(self, cycle: str, why: str, body: bytes) -> None:
        """See `DecisionStore`."""
        name = _file_name(check_cycle(cycle), why)
        async with self._turn:
            await self._in_thread(lambda: self._put(cycle, name, body))

    async def get(self, cycle: str) -> bytes | None:
        """See `DecisionStore`."""
        check_cycle(cycle)

        def read() -> bytes | None:
            for why in WHYS:
                path = self._root / _file_name(cycle, why)
                if path.exists():
                    return path.read_bytes()
            return None

        return await self._in_thread(read)

    async def stored(self) -> tuple[StoredDecision, ...]:
        """See `DecisionStore`."""
        return await self._in_thread(self._stored)

    def _put(self, cycle: str, name: str, body: bytes) -> None:
        partial = self._root / f".{name}.partial"
        partial.touch(mode=0o600)
        partial.write_bytes(body)
        for why in WHYS:
            if _file_name(cycle, why) != name:
                (self._root / _file_name(cycle, why)).unlink(missing_ok=True)
        partial.replace(self._root / name)
        stored = self._stored()
        whys = {item.cycle: item.why for item in stored}
        for gone in superseded(stored, self._limits):
            (self._root / _file_name(gone, whys[gone])).unlink(missing_ok=True)

    def _stored(self) -> tuple[StoredDecision, ...]:
        found = []
        for path in self._root.glob(f"[0-9]*{SUFFIX}"):
            epoch, number, *rest = path.name.removesuffix(SUFFIX).split(".")
            try:
                cycle, stat = check_cycle(f"{epoch}.{number}"), path.stat()
            except (ValueError, FileNotFoundError):
                continue
            why = rest[0] if rest and rest[0] in WHYS else ""
            found.append(
                StoredDecision(cycle, stat.st_mtime_ns // _NS_PER_MS, stat.st_size, why)
            )
        return tuple(sorted(found, key=lambda item: item.order, reverse=True))

    async def _in_thread(self, call: Callable[[], Answer]) -> Answer:
        try:
            return await asyncio.to_thread(call)
        except OSError as error:
            raise FeedbackUnavailable(f"decisions: {error}") from error


def _file_name(cycle: str, why: str) -> str:
    return f"{cycle}.{why}{SUFFIX}" if why else f"{cycle}{SUFFIX}"
