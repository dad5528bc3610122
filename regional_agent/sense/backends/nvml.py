"""NVIDIA cards through NVML (package `nvidia-ml-py`, an extra of the agent).

The library object is handed in, so that the code runs against anything that answers like it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from regional_agent.sense.host import Card, CardUse


class NoCards:
    """`Cards` of a host without a driver."""

    def cards(self) -> tuple[Card, ...]:
        """None."""
        return ()

    def use(self) -> tuple[CardUse, ...]:
        """None."""
        return ()


class NvmlCards:
    """`Cards` by NVML. Each call opens the library anew: drivers are reloaded under agents."""

    def __init__(self, library: Any) -> None:
        self._nvml = library

    def cards(self) -> tuple[Card, ...]:
        """Cards by index; one that does not answer (fallen off the bus) is left out."""
        return tuple(card for card, _ in self._answering())

    def use(self) -> tuple[CardUse, ...]:
        """What each answering card does; figures it does not give are 0."""
        return tuple(use for _, use in self._answering())

    def _answering(self) -> list[tuple[Card, CardUse]]:
        nvml = self._nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return []
        try:
            found = [self._read(index) for index in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError:
            return []
        finally:
            nvml.nvmlShutdown()
        return [pair for pair in found if pair is not None]

    def _read(self, index: int) -> tuple[Card, CardUse] | None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name = nvml.nvmlDeviceGetName(handle)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError:
            return None
        # Older releases of the library give bytes.
        text = name.decode() if isinstance(name, bytes) else str(name)
        card = Card(index, text, int(memory.total), self._uuid(handle))
        return card, self._read_use(handle, index, int(memory.used))

    def _uuid(self, handle: Any) -> str:
        try:
            found = self._nvml.nvmlDeviceGetUUID(handle)
        except self._nvml.NVMLError:
            return ""
        return found.decode() if isinstance(found, bytes) else str(found)

    def _read_use(self, handle: Any, index: int, used_bytes: int) -> CardUse:
        nvml = self._nvml
        try:
            busy = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except nvml.NVMLError:
            busy = 0
        try:
            running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLError:
            running = []
        return CardUse(index, busy, used_bytes, tuple(int(p.pid) for p in running))


def nvml_cards() -> NvmlCards | NoCards:
    """The cards of this host, if the extra is installed; NoCards otherwise."""
    library = _import()
    return NoCards() if library is None else NvmlCards(library)


def _import() -> ModuleType | None:
    try:
        import pynvml
    except ImportError:
        return None
    module: ModuleType = pynvml
    return module
