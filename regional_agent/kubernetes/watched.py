"""A collection of the cluster kept up to date by a watch: listed once, and from there on told.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes. A watch
that ends goes on from the last version it heard of, which bookmarks keep fresh; where the server
has forgotten that version (410), everything is listed anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from regional_agent.kubernetes.api import Expired, KubernetesRefused, KubernetesSilent, Object

AGAIN_FIRST_S = 0.1
AGAIN_MAX_S = 10.0
GONE = 410

_log = logging.getLogger(__name__)


class Collection(Protocol):
    """What can be listed and watched."""

    async def listed(self) -> tuple[list[Object], str]:
        """Everything, and the version it is of."""

    def watch(self, version: str) -> AsyncIterator[Object]:
        """Events after a version; ends when the server ends it. Raises Expired and others."""


class Watched:
    """The objects of a collection by name. `news` is called after every change."""

    def __init__(self, of: Collection, news: Callable[[], None]) -> None:
        self._of = of
        self._news = news
        self._version = ""
        self._items: dict[str, Object] = {}
        self._task: asyncio.Task[None] | None = None
        self._following = asyncio.Event()
        self._trouble: KubernetesSilent | KubernetesRefused | None = None

    async def items(self) -> list[Object]:
        """As they were told last. Raises what the API does while there is no watch, for what it
        told before may be long past."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        while not self._following.is_set():
            if self._trouble is not None:
                raise self._trouble
            await self._next()
        return list(self._items.values())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._following.clear()
        self._version = ""

    async def _next(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_FIRST_S):
                await self._following.wait()

    async def _run(self) -> None:
        wait_s = AGAIN_FIRST_S
        while True:
            try:
                await self._follow()
                wait_s = AGAIN_FIRST_S
            except Expired:
                self._version = ""
                continue
            except (KubernetesSilent, KubernetesRefused) as problem:
                self._trouble = problem
                self._following.clear()
            except Exception as problem:  # noqa: BLE001  ended here, what it told last stood for ever
                _log.exception("what is watched cannot be read; it is listed anew")
                self._trouble = KubernetesSilent(f"unreadable: {type(problem).__name__}: {problem}")
                self._version = ""
                self._following.clear()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, AGAIN_MAX_S)

    async def _follow(self) -> None:
        """One watch, from its beginning to its end."""
        if not self._version:
            items, self._version = await self._of.listed()
            self._items = {str(each["metadata"]["name"]): each for each in items}
            self._news()
        self._trouble = None
        self._following.set()
        async for event in self._of.watch(self._version):
            self._take(event)

    def _take(self, event: Object) -> None:
        kind, thing = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            code = int(thing.get("code") or 0)
            text = str(thing.get("message", ""))
            raise (Expired if code == GONE else KubernetesRefused)(code, text)
        metadata = thing["metadata"]
        self._version = str(metadata["resourceVersion"])
        if kind == "BOOKMARK":
            return
        name = str(metadata["name"])
        if kind == "DELETED":
            self._items.pop(name, None)
        else:
            self._items[name] = thing
        self._news()
